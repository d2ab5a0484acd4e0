"""Protects what docs/faq.md says about freed memory in a process that then idles."""

import os
import time
from pathlib import Path

import blackbox

IDLE = Path(__file__).with_name("idle.c")


KEPT = {  # (what the program does, HAKMEM_PURGE_THREAD): whether its memory stays
    ("alone", "auto"): True,
    ("alone", "always"): False,
    ("trim", "auto"): False,
    ("threaded", "auto"): False,
    ("threaded", "never"): True,
}


PAUSE = 1.5  # seconds: longer than HAKMEM_PURGE_DELAY


def resident_mib(process):
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20


def test_memory_of_idle_processes(compiled, library, ready):
    """A process of one thread keeps it, unless it has a purge thread or calls malloc_trim. All wait at once: those that
    give memory back show when this machine has come to it."""
    program = compiled(IDLE)
    running = {what: ready([program, what[0]], preload=library, env={"HAKMEM_PURGE_THREAD": what[1]}) for what in KEPT}
    time.sleep(PAUSE)
    assert blackbox.wait_until(lambda: all(resident_mib(running[what]) < 20 for what in KEPT if not KEPT[what]))
    resident = {what: resident_mib(process) for what, process in running.items()}
    assert {what: mib > 95 for what, mib in resident.items()} == KEPT, resident
