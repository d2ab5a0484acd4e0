"""Protects fork, short-lived threads, destructors that allocate, small stacks and cancellation."""

import re
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
OPTIONS = {
    "defaults": {},
    "no pending queues": {"HAKMEM_MF2_ENABLE": "0"},
    "smallest caches": {
        "HAKMEM_FC_CAP": "8",
        "HAKMEM_FC_REFILL": "1",
        "HAKMEM_CACHE_BYTES": "16K",
        "HAKMEM_WARM_POOL": "0",
    },
    "purge at once": {"HAKMEM_PURGE_DELAY": "0", "HAKMEM_SS_LRU_SIZE": "0"},
    "purge thread": {"HAKMEM_PURGE_THREAD": "1", "HAKMEM_PURGE_DELAY": "5"},
}


def run_without_growth(program, count, timeout=60, emulated=None, env=None):
    """The process must not grow with the number of threads. qemu 7.2 keeps some 280 KiB of each ended thread, so with
    `emulated` threads the growth is compared with glibc's."""
    if not blackbox.EMULATOR:
        blackbox.run_done([program, count], env=env, timeout=timeout)
        return
    plain, ours = (run([program, emulated, "tell"], env=env, timeout=timeout)
                   for run in (blackbox.run, blackbox.run_with_proof))
    grown = [int(re.fullmatch(r"(\d+) KiB\ndone\n", result.stdout)[1]) for result in (plain, ours)]
    assert grown[0] > 8 << 10, "the emulator keeps nothing: the plain test can run"
    assert grown[1] < grown[0] + (8 << 10), grown


@pytest.mark.parametrize("options", OPTIONS)
def test_fork_storm(compiled, options):
    """Eight threads each fork in the middle of their calls. No child may find a lock held forever. Under qemu 7.2 glibc
    alone hung in 18 of 20 runs on one machine (6 children each; HAKMEM in 17 of 20), so there one thread forks beside
    the first, and no purge thread runs beside them."""
    if blackbox.EMULATOR and options == "purge thread":
        pytest.skip("with a third thread, a forked copy of qemu 7.2 can wait forever for its own call_rcu thread")
    children = 25 if options == "defaults" else 6
    threads = 1 if blackbox.EMULATOR else 8
    result = blackbox.run_with_proof([compiled(HERE / "fork_storm.c"), threads, children], env=OPTIONS[options])
    assert (result.status, result.stdout) == (0, f"{threads * children} children\n"), result.report()


@pytest.mark.skipif(bool(blackbox.EMULATOR), reason="a fork storm hangs under qemu 7.2")
def test_fork_storm_of_a_crowd(compiled):
    """The same with so many threads that most share heaps: a child's thread inherits one, with its orphans' caches."""
    result = blackbox.run_with_proof([compiled(HERE / "fork_storm.c"), 100, 1])
    assert (result.status, result.stdout) == (0, "100 children\n"), result.report()


def test_programs_started_from_threads(compiled):
    blackbox.run_done([compiled(HERE / "spawn.c"), 12], timeout=90)


def test_destructors_that_allocate(compiled):
    run_without_growth(compiled(HERE / "thread_exit.c"), 600, emulated=150)


def test_cpp_thread_local_objects(compiled):
    blackbox.run_done([compiled(HERE / "thread_local.cpp")], timeout=60)


@pytest.mark.parametrize("options", ["defaults", "smallest caches", "purge thread"])
def test_ten_thousand_threads(compiled, options):
    run_without_growth(compiled(HERE / "many_threads.c"), 10000, emulated=800, env=OPTIONS[options])


def test_smallest_stack(compiled):
    blackbox.run_done([compiled(HERE / "tiny_stack.c")], timeout=60)


def test_cancelled_threads(compiled):
    blackbox.run_done([compiled(HERE / "cancel.c")], timeout=60)
