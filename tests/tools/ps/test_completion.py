"""Protects completion in the shells themselves: commands, options, PIDs and names."""

import shutil
import sys

import blackbox
import pexpect
import pytest
from conftest import ENVIRONMENT, own
from inprocess import hakmem


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A folder for PATH with the command hakmem."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "hakmem"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m hakmem "$@"\n')
    script.chmod(0o755)
    return folder


def environment(command):
    import os

    return blackbox.environment({**ENVIRONMENT, "PATH": f"{command}:{os.environ['PATH']}", "TERM": "dumb"})


def typed(shell, command, prepare, line, wanted):
    """Types a line and a tab into a shell, and waits for the completion."""
    # Without the shell's own settings and history.
    child = pexpect.spawn(shutil.which(shell), ["--norc"] if shell == "bash" else ["-f"], env=environment(command),
                          encoding="utf-8", timeout=blackbox.HANG, dimensions=(50, 200))
    try:
        child.sendline("PS1='>'")
        for each in [*prepare, "echo rea''dy"]:
            child.sendline(each)
        child.expect("ready")
        child.send(f"{line}\t")
        child.expect_exact(wanted)
    finally:
        child.close(force=True)


BASH = ['eval "$(hakmem completion bash)"']
ZSH = ["autoload -U compinit; compinit -u -D", 'eval "$(hakmem completion zsh)"']


@pytest.mark.parametrize("shell, prepare", [("bash", BASH), ("zsh", ZSH)])
def test_a_command_and_a_name(shell, prepare, command, waiting, library):
    waiting(own("tab"), library)
    typed(shell, command, prepare, "hakmem lo", "look ")
    typed(shell, command, prepare, "hakmem look --expl", "explain ")
    typed(shell, command, prepare, f"hakmem look --stats {own('ta')}", f"{own('tab')} ")


def fish(command, line):
    result = blackbox.run(["fish", "-c", f"hakmem completion fish | source; complete -C '{line}'"],
                          env={**ENVIRONMENT, "PATH": environment(command)["PATH"], "HOME": "/tmp"})
    return [word.split("\t")[0] for word in result.stdout.splitlines()]


def test_in_fish(command, waiting, library):
    process = waiting(own("fish"), library)
    assert fish(command, "hakmem lo") == ["look"] and fish(command, "hakmem expl") == []
    assert fish(command, "hakmem look --expl") == ["--explain"]
    assert fish(command, "hakmem look 1 --map --out") == ["--output"]
    assert fish(command, f"hakmem stats {own('fi')}") == [own("fish")]
    assert str(process.pid) in fish(command, "hakmem stats ") and str(process.pid) in fish(command, "hakmem look ")
    assert fish(command, "hakmem doctor --js") == ["--json"]
    assert "/etc/passwd" in fish(command, "hakmem run -- cat /etc/passw")


def test_the_checkouts_own_commands(waiting, library):
    """./hakmem answers for its commands, and itself for the words of build and fuzz."""
    script = blackbox.REPOSITORY / "hakmem"

    def answer(line):
        result = blackbox.run([script], env={**ENVIRONMENT, "_HAKMEM_COMPLETE": "bash_complete", "COMP_WORDS": line,
                                             "COMP_CWORD": str(line.count(" "))})
        return [word.removeprefix("plain,") for word in result.stdout.split()]

    text = "".join(path.read_text() for path in (blackbox.REPOSITORY / "tools/command").glob("*.sh"))
    assert answer("hakmem bu") == ["build"]
    assert answer("hakmem lo") == ["look"] and answer("hakmem ex") == []
    flavors = text.split("check_flavor()")[1].split("case $1 in\n")[1].split(")")[0]
    assert answer("hakmem build ") == [*(word.strip() for word in flavors.split("|")), "coverage"]
    targets = text.split("command_fuzz()")[1].split("case $target in\n")[1].split(")")[0]
    assert answer("hakmem fuzz ") == [word.strip(" \\\n") for word in targets.split("|")]
    assert answer("hakmem sh") == ["shell"]
    assert answer("hakmem test --fl") == ["--flavor"]


def test_without_the_tools_the_commands_are_known(tmp_path):
    """A tab must not install anything."""
    shutil.copy(blackbox.REPOSITORY / "hakmem", tmp_path / "hakmem")
    shutil.copytree(blackbox.REPOSITORY / "tools/command", tmp_path / "tools/command")
    (tmp_path / "tools/requirements.txt").write_text("wanted\n")
    result = blackbox.run([tmp_path / "hakmem"], env={"_HAKMEM_COMPLETE": "bash_complete", "COMP_WORDS": "hakmem p",
                                                      "COMP_CWORD": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert result.stdout.split() == ["plain,package", "plain,peers"], result.report()
    assert not (tmp_path / "build").exists()


def test_an_unknown_shell_is_2():
    hakmem("completion", "csh").says(2, "csh")
