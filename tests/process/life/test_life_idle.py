"""Protects what docs/faq.md says about freed memory in a process that then idles."""

import os
import re
import time
from pathlib import Path

import blackbox

IDLE = Path(__file__).with_name("idle.c")


RUNS = [  # what the program does, HAKMEM_PURGE_THREAD
    ("alone", "auto"),
    ("alone", "always"),
    ("again", "auto"),
    ("trim", "auto"),
    ("threaded", "auto"),
    ("threaded", "never"),
    ("ended", "auto"),
    ("huge", "auto"),
]
STAYS = ("again", "auto")  # it wanted the memory again soon; "soon" is a minute here, for machines that are busy


PAUSE = 1.5  # seconds: longer than HAKMEM_PURGE_DELAY


def resident_mib(process):
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20


def test_memory_of_idle_processes(compiled, library, ready):
    """It leaves, whichever threads there are. All wait at once: each shows when this machine has come to it."""
    program = compiled(IDLE, "-pthread")
    soon = {STAYS: {"HAKMEM_PURGE_DELAY": "60000"}}
    running = {run: ready([program, run[0]], preload=library, env={"HAKMEM_PURGE_THREAD": run[1], **soon.get(run, {})})
               for run in RUNS}
    time.sleep(PAUSE)
    leave = [process for run, process in running.items() if run != STAYS]
    blackbox.wait_until(lambda: all(resident_mib(process) <= 24 for process in leave))
    resident = {run: resident_mib(process) for run, process in running.items()}
    assert all(mib <= 24 for run, mib in resident.items() if run != STAYS) and resident[STAYS] > 95, resident


def test_an_idle_process_is_not_woken(compiled, library, ready):
    """The purge thread sleeps without a limit when nothing is left to give back: it makes no system call."""
    process = ready([compiled(IDLE, "-pthread"), "threaded"], preload=library)
    blackbox.wait_until(lambda: resident_mib(process) <= 24)

    def switches():
        return [re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.M)[1]
                for task in sorted(Path(f"/proc/{process.pid}/task").iterdir())]

    def stays():
        before = switches()
        time.sleep(PAUSE)
        return switches() == before

    assert blackbox.wait_until(stays), switches()
