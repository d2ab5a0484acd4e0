"""Protects `./hakmem shell` and the devcontainer: what developers need is found by its name, and the prompt says so."""

import json
import os
import shlex
import sys
from pathlib import Path

import checkout
import pexpect
import pytest

import blackbox

ROOT = blackbox.REPOSITORY
COMMAND = ROOT / "hakmem"
CONTAINER = ROOT / ".devcontainer/devcontainer.json"
LISTS = ("build", "test")  # in tools/packages
# A user's own settings, which know nothing of a checkout.
BASHRC = "PATH=/usr/bin:/bin\nPS1='mine> '\nbind 'set enable-bracketed-paste off'\n"


def hakmem(*words, **variables):
    return blackbox.run([COMMAND, *words], env=checkout.environment(**variables), timeout=300)


def test_programs_are_found_by_their_names():
    found = hakmem("shell", "--", "bash", "-c", "command -v hakmem python pytest gen_docs larson; echo $VIRTUAL_ENV")
    assert found.status == 0, found.report()
    assert found.stdout.splitlines() == [str(ROOT / name) for name in (
        "hakmem", "build/venv/bin/python", "build/venv/bin/pytest", "build/release/bin/gen_docs",
        "build/release/bin/larson", "build/venv")]


def test_it_ends_as_the_program_does():
    assert hakmem("shell", "--", "sh", "-c", "exit 7").status == 7
    assert hakmem("shell", "--", "hakmem-no-such-program").status == 127
    assert hakmem("shell", "--", "/").status == 126


def test_words_without_dashes_are_refused():
    for words in (["ls"], ["--"], ["--nonesuch"]):
        result = hakmem("shell", *words)
        assert result.status == 2 and "Try 'hakmem help'." in result.stderr, result.report()


def test_commands_on_standard_input(tmp_path):
    script = tmp_path / "script"
    script.write_text("command -v gen_docs\nexit 3\n")
    result = blackbox.run(["sh", "-c", f"{shlex.quote(str(COMMAND))} shell <{shlex.quote(str(script))}"],
                          env=checkout.environment(), timeout=300)
    assert (result.status, result.stdout) == (3, f"{ROOT}/build/release/bin/gen_docs\n"), result.report()


def test_on_a_terminal(tmp_path):
    """The user's own prompt with the word before it, the PATH although ~/.bashrc sets another, and completion."""
    (tmp_path / ".bashrc").write_text(BASHRC)
    shell = pexpect.spawn(str(COMMAND), ["shell"], env=checkout.environment(HOME=str(tmp_path), TERM="dumb"),
                          encoding="utf-8", timeout=blackbox.HANG, dimensions=(50, 200), cwd=tmp_path)
    shell.expect_exact("(hakmem) mine> ")
    shell.sendline("pwd; command -v hakmem larson")
    shell.expect_exact(f"{tmp_path}\r\n{COMMAND}\r\n{ROOT}/build/release/bin/larson\r\n(hakmem) mine> ")
    shell.send("hakmem amalg\t")
    shell.expect_exact("amalgamate ")
    shell.sendcontrol("u")  # and not Ctrl-C: bash may miss a signal that comes as it completes a word
    shell.sendline("exit 5")
    shell.expect(pexpect.EOF)
    shell.wait()
    assert shell.exitstatus == 5


def test_what_is_missing_is_named_and_the_shell_starts(tmp_path):
    """In a small checkout with a build that does nothing, and on a system where nothing can be installed."""
    script = checkout.make(tmp_path / "checkout")
    for kind in LISTS:
        (script.parent / f"tools/packages/{kind}.txt").write_text(f"hakmem-no-such-{kind}  # is for {kind}\n")
    path = checkout.programs(tmp_path / "programs", cmake="exit 0", apt_get="exit 100")
    result = blackbox.run([script, "shell", "--", "printenv", "PATH"], env=checkout.environment(PATH=path), timeout=120)
    assert result.status == 0, result.report()
    assert all(f"  hakmem-no-such-{kind}: is for {kind}\n" in result.stderr for kind in LISTS)
    folders = [script.parent / name for name in ("", "build/venv/bin", "build/release/bin")]
    assert result.stdout == ":".join(map(str, [*folders, path])) + "\n"
    assert (script.parent / "build/venv/made-test").exists()


# ---- The devcontainer ----


@pytest.fixture(scope="module")
def container():
    return json.loads(CONTAINER.read_text())


def test_the_container_is_the_system_that_is_tested(container):
    assert container["image"] == "debian:12"
    assert "Debian 12" in (ROOT / "docs/platforms.md").read_text()


def test_the_container_is_set_up_by_this_checkout_alone(container):
    """The lists of packages are the script's: the file names none."""
    assert not {"build", "dockerFile", "features", "onCreateCommand"} & container.keys()
    words = shlex.split(container["postCreateCommand"])
    assert words[:3] == ["./hakmem", "--yes", "shell"]
    done = blackbox.run([COMMAND, *words[1:]], cwd=ROOT, env=checkout.environment(), timeout=300)
    assert done.status == 0 and done.stdout == "", done.report()


def test_the_containers_paths_are_there(container):
    settings = container["customizations"]["vscode"]["settings"]
    profile = settings["terminal.integrated.profiles.linux"][settings["terminal.integrated.defaultProfile.linux"]]
    assert profile["args"] == ["shell"]
    for path in (profile["path"], settings["python.defaultInterpreterPath"]):
        file = Path(path.replace("${workspaceFolder}", str(ROOT)))
        assert os.access(file, os.X_OK), file
    assert Path(sys.prefix) == ROOT / "build/venv"
