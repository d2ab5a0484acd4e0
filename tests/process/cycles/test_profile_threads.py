"""Protects the cycle profile of threads, of ended threads, and of a fork's child."""

from pathlib import Path

import pytest

import profiling

FOLDER = Path(__file__).resolve().parent
THREADS = 20  # of known.c


@pytest.fixture(scope="module")
def known(compiled):
    return compiled(FOLDER / "known.c")


def between(program, kind, count):
    before, after = profiling.documents(profiling.run([program, kind, count]).stderr)
    return profiling.change(before, after)


def test_threads_that_died_are_counted(known):
    """The thread library's own calls for a thread are few. Threads that make no calls show their number."""
    idle, busy = between(known, "threads", 0), between(known, "threads", 3000)
    assert busy.mallocs - idle.mallocs == THREADS * 3000
    assert busy.frees - idle.frees == THREADS * 3000
    assert busy.kinds["malloc_hit"] > THREADS * 2000


def test_a_call_after_a_threads_end_is_counted(known):
    """A younger key's destructor frees its block after the thread's cache is gone. The C library frees NULLs."""
    idle, change = between(known, "thread", 0), between(known, "end", 1)
    assert change.mallocs - idle.mallocs == 1
    assert (change.frees - change.kinds["free_null"]) - (idle.frees - idle.kinds["free_null"]) == 1


def test_remote_frees(known):
    change = between(known, "remote", 1)
    assert change.kinds["remote"] >= 1
    assert change.kinds["remote"] <= change.kinds["flush"] + change.kinds["free_miss"] + change.kinds["refill"]


def test_a_forked_child_starts_at_zero(known):
    before, at_birth, at_end, parent = profiling.documents(profiling.run([known, "fork", 4000]).stderr)
    assert before["frequency_hz"] == pytest.approx(at_birth["frequency_hz"], rel=0.01)
    assert sum(at_birth["kinds"][kind]["count"] for kind in profiling.KINDS) == 0
    child = profiling.change(at_birth, at_end)
    assert child.mallocs == child.frees == 4000
    kept = profiling.change(before, parent)
    assert kept.mallocs == kept.frees == 5000
