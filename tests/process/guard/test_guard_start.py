"""Protects `hakmem guard --start`: guards in a process that was started without them."""

import re
import signal
import sys

import blackbox
import pytest

from conftest import HERE

sys.path.insert(0, str(HERE.parents[1] / "tools/heap"))

from steady import FLAGS, SOURCE, steady  # noqa: E402


@pytest.fixture
def running(compiled, library):
    with steady(compiled(SOURCE, *FLAGS), library) as process:
        process.tell("pulse")
        yield process


def test_an_error_is_found(running, hakmem):
    running.tell("overrun", 1000)  # before the start: no error is seen
    assert "`hakmem guard --start" in hakmem("guard", running.pid).stdout
    begun = hakmem("guard", "--start", "--rate", "1", running.pid)
    assert begun.status == 0 and f"process {running.pid} guards a block every 1 B of allocation" in begun.stdout, begun.report(
    )
    assert "guards are on" in hakmem("guard", running.pid).stdout
    running.send("overrun", 100000)
    status, said = running.process.wait(blackbox.HANG), running.process.stderr.read()
    # A guarded block lies at the right end of its pages, where the write faults, or at the left, where free finds it.
    found = {
        -signal.SIGSEGV: r"write at 0x[0-9a-f]+,",
        -signal.SIGABRT: r"free\(0x[0-9a-f]+\): written around the block: changed"
    }
    assert status in found, said
    assert re.search(rf"hakmem: guard: {found[status]} 8 bytes behind the end of a block of 1008 bytes", said), said
    # Both stacks, found without an unwinder: the program is C, and no library was loaded.
    assert said.count("/steady-") >= 4, said


def test_stop(running, hakmem):
    assert hakmem("guard", "--start", running.pid).status == 0
    assert hakmem("guard", "--stop", running.pid).stdout == f"process {running.pid} guards no more blocks\n"
    assert "guards are off" in hakmem("guard", running.pid).stdout
    assert hakmem("guard", "--stop", running.pid).stdout == f"process {running.pid} guards no blocks\n"
    running.tell("overrun", 1000)


def test_an_idle_process_follows_later(compiled, library, hakmem):
    with steady(compiled(SOURCE, *FLAGS), library) as idle:
        begun = hakmem("guard", "--start", idle.pid)
        assert begun.status == 0 and begun.stdout == "", begun.report()
        assert begun.stderr.startswith(f"hakmem guard: process {idle.pid} has made no call of malloc or free in 3 s")
        assert begun.stderr.endswith(f"; `hakmem guard --stop {idle.pid}` takes it back\n"), begun.report()
        idle.tell("pulse")
        assert "guards are on" in hakmem("guard", idle.pid).stdout


@pytest.mark.parametrize("arguments,said", [
    (["--start", "--stop", "1"], "--start or --stop takes one PID"),
    (["--rate", "4K", "1"], "--rate goes with --start"),
    (["--start", "/etc/hostname"], "--start or --stop takes one PID"),
    (["--start", "--rate", "many", "1"], "'many' is no number of bytes"),
])
def test_wrong_use(hakmem, arguments, said):
    done = hakmem("guard", *arguments)
    assert done.status == 2 and said in done.stderr, done.report()
