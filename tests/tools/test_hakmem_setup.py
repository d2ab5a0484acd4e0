"""What ./hakmem sets up by itself: build/venv, also when two of them begin at once."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import checkout
import pexpect
import pytest

import blackbox


@pytest.fixture
def script(tmp_path):
    return checkout.make(tmp_path / "checkout")


@pytest.fixture
def open_script():
    """In a checkout of root's that others may look into. Not in pytest's own folder, which is closed to them."""
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as folder:
        os.chmod(folder, 0o755)
        yield checkout.make(Path(folder, "checkout"))


def start(script, *arguments, **variables):
    return subprocess.Popen([script, *arguments], env=checkout.environment(**variables), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} has not come"
        time.sleep(0.02)


def test_two_first_uses_at_once(script):
    """The second begins while the first makes build/venv: it waits, and both end well on the same one."""
    first = start(script, "stats", "1")
    wait_for(script.parent / "build/venv/pyvenv.cfg")
    second = start(script, "explain", "2")
    said = [(process.communicate(timeout=120), process.returncode) for process in (first, second)]
    assert [(out, status) for (out, _), status in said] == [("tool stats 1\n", 0), ("tool explain 2\n", 0)], said
    (_, first_told), (_, second_told) = (told for told, _ in said)
    assert first_told == "hakmem: making build/venv\n"
    assert second_told == "hakmem: another hakmem sets this checkout up; waiting for it\n"


# ---- Debian's packages ----

@pytest.fixture
def no_dpkg(tmp_path):
    """A PATH with every command but Debian's own and cargo."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            if not command.name.startswith(("dpkg", "apt", "cargo")):
                (folder / command.name).unlink(missing_ok=True)
                (folder / command.name).symlink_to(command.resolve())
    return str(folder)


@pytest.mark.parametrize("arguments, status, words", [
    (["stats", "4194304"], 1, "there is no process 4194304"),
    (["heap", "4194304"], 1, "4194304"),
    (["trace", "info", "/nonesuch"], 1, "cannot read /nonesuch"),
    (["peers", "list"], 0, ""),
    (["bench", "--list"], 0, ""),
    (["compare", "--", "hakmem-no-such-program"], 1, "program 'hakmem-no-such-program' not found"),
])
def test_nothing_is_asked_for_that_is_there(no_dpkg, arguments, status, words):
    """Another system than Debian, on which all that the command takes is there; cargo is not, which these never need."""
    result = blackbox.run([blackbox.REPOSITORY / "hakmem", *arguments], env=checkout.environment(PATH=no_dpkg))
    assert result.status == status and words in result.stderr and "Debian" not in result.stderr, result.report()


LIST = "hakmem-no-such-package  # shows that it is asked for\nbash\n"


def test_root_is_asked_on_a_terminal(script):
    """What is to be installed, what for, and a question; nothing happens after a no."""
    (script.parent / "tools/packages-test.txt").write_text(LIST)
    run = pexpect.spawn(str(script), ["test"], env=checkout.environment(), timeout=60, encoding="utf-8",
                        dimensions=(40, 400))
    run.expect(r"hakmem: 'hakmem test' needs Debian packages that are not installed: .*hakmem-no-such-package\r\n")
    run.expect(r"  hakmem-no-such-package: shows that it is asked for\r\n")
    run.expect(r"Install them\? \[Y/n\] ")
    run.sendline("n")
    run.expect("hakmem: nothing was installed\r\n")
    run.expect(pexpect.EOF)
    run.wait()
    assert run.exitstatus == 1 and "installing" not in run.before


def test_who_may_not_install_is_told_how(open_script):
    (open_script.parent / "tools/packages-test.txt").write_text(LIST)
    result = blackbox.run([open_script, "test"], env=checkout.environment(), user="nobody")
    assert result.status == 1, result.report()
    assert "install them as root: apt-get install " in result.stderr and "hakmem-no-such-package" in result.stderr
