"""Protects the tools that look at a process whose first thread has ended: other threads go on, and hold its memory."""

import json
import os
import signal
import time
from pathlib import Path

import blackbox
import pytest

from hakmem.doctor.system import read_process
from hakmem.live import ProcessMemory
from hakmem.live.memory import NoProcess, living_thread

PROGRAM = blackbox.REPOSITORY / "tests" / "process" / "life" / "first_gone.c"


@pytest.fixture
def program(start, compiled, library):
    return start([compiled(PROGRAM, "-O1", "-g", "-pthread"), "wait"], library)


def test_its_memory_is_read(program, hakmem):
    assert Path(f"/proc/{program.pid}/maps").read_text() == "", "the kernel shows it: the test has no object"
    for command in ("explain", "stats"):
        told = json.loads(hakmem(command, program.pid, "--json"))
        assert living_thread(program.pid) == told["pid"] != program.pid
    found = read_process(ProcessMemory(program.pid).pid)
    assert any("libhakmem" in mapping.path for mapping in found.mappings)


def test_a_process_whose_threads_have_all_ended_is_none(program):
    os.kill(program.pid, signal.SIGKILL)
    while living_thread(program.pid):
        time.sleep(0.01)
    assert os.path.exists(f"/proc/{program.pid}")
    with pytest.raises(NoProcess, match=str(program.pid)):
        ProcessMemory(program.pid)


def test_a_process_whose_threads_end_one_by_one_is_found(start, compiled):
    """The kernel's list of a process's threads lacks some while others end: a quarter of the lists, here."""
    pid = start([compiled(PROGRAM, "-O1", "-g", "-pthread"), "relay"]).pid
    assert all(living_thread(pid) for _ in range(2000))
