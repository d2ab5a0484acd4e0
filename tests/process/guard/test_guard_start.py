"""Protects `hakmem guard --start`: guards in a process that was started without them."""

import re
import signal
import sys

import blackbox
import machine
import pytest

from conftest import HERE
from messages import numbers

sys.path.insert(0, str(HERE.parents[1] / "tools/heap"))

from steady import FLAGS, SOURCE, steady  # noqa: E402


@pytest.fixture
def running(compiled, library):
    machine.require("process_vm_readv")
    with steady(compiled(SOURCE, *FLAGS), library) as process:
        process.tell("pulse")
        yield process


def test_an_error_is_found(running, hakmem):
    running.tell("overrun", 1000)  # before the start: no error is seen
    assert "`hakmem guard --start" in hakmem("guard", running.pid).stdout
    begun = hakmem("guard", "--start", "--rate", "1", running.pid)
    assert begun.status == 0 and str(running.pid) in begun.stdout, begun.report()
    assert "guards are on" in hakmem("guard", running.pid).stdout
    running.send("overrun", 100000)
    status, said = running.process.wait(blackbox.HANG), running.process.stderr.read()
    # A guarded block lies at the right end of its pages, where the write faults, or at the left, where free finds it.
    function = {-signal.SIGSEGV: "write ", -signal.SIGABRT: "free("}
    (first,) = re.findall(rf"^hakmem: guard: {re.escape(function[status])}.*", said, re.MULTILINE)
    assert {8, 1008} <= set(numbers(first)), said
    # Both stacks, found without an unwinder: the program is C, and no library was loaded.
    assert said.count("/steady-") >= 4, said


def test_stop(running, hakmem):
    assert hakmem("guard", "--start", running.pid).status == 0
    for _ in range(2):
        stopped = hakmem("guard", "--stop", running.pid)
        assert stopped.status == 0 and str(running.pid) in stopped.stdout, stopped.report()
    assert "guards are off" in hakmem("guard", running.pid).stdout
    running.tell("overrun", 1000)


@machine.needs("process_vm_readv")
def test_an_idle_process_follows_later(compiled, library, hakmem):
    with steady(compiled(SOURCE, *FLAGS), library) as idle:
        begun = hakmem("guard", "--start", idle.pid)
        assert begun.status == 0 and begun.stdout == "", begun.report()
        assert f"`hakmem guard --stop {idle.pid}`" in begun.stderr, begun.report()
        idle.tell("pulse")
        assert "guards are on" in hakmem("guard", idle.pid).stdout


def test_wrong_use(hakmem):
    for arguments, named in [(["--start", "--stop", "1"], "--stop"), (["--rate", "4K", "1"], "--rate"),
                             (["--start", "/etc/hostname"], "--start"), (["--start", "--rate", "many", "1"], "'many'")]:
        done = hakmem("guard", *arguments)
        assert done.status == 2 and named in done.stderr and "Traceback" not in done.stderr, done.report()
