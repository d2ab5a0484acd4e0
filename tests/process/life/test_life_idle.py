"""Protects what docs/faq.md says about freed memory in a process that then idles."""

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


def test_memory_of_idle_processes(compiled, library):
    """A process of one thread keeps it, unless it has a purge thread or calls malloc_trim. All wait at once."""
    program = compiled(IDLE)
    running = {
        what: blackbox.start([program, what[0]], preload=library, env={"HAKMEM_PURGE_THREAD": what[1]}) for what in KEPT
    }
    resident = {what: int(process.communicate(timeout=120)[0]) for what, process in running.items()}
    assert {what: mib > 95 for what, mib in resident.items()} == KEPT, resident
    assert all(mib < 20 for what, mib in resident.items() if not KEPT[what]), resident
