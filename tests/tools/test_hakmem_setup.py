"""What ./hakmem sets up by itself: build/venv, also when two of them begin at once."""

import subprocess
import time

import checkout
import pytest


@pytest.fixture
def script(tmp_path):
    return checkout.make(tmp_path / "checkout")


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
