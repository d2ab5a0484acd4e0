"""Birth and death: fork, threads that come and go, destructors that allocate, small stacks, cancellation."""

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


@pytest.mark.parametrize("options", OPTIONS)
def test_fork_storm(compiled, options):
    """Eight threads in the midst of their calls while each of them forks; no child may find a lock held for ever."""
    children = 25 if options == "defaults" else 6
    result = blackbox.run_both([compiled(HERE / "fork_storm.c"), 8, children], env=OPTIONS[options], timeout=90)
    assert result.stdout.splitlines()[-1] == f"{8 * children} children"


def test_programs_started_from_threads(compiled):
    blackbox.run_both([compiled(HERE / "spawn.c"), 12], timeout=90)


def test_destructors_that_allocate(compiled):
    blackbox.run_both([compiled(HERE / "thread_exit.c"), 600], timeout=60)


def test_cpp_thread_local_objects(compiled):
    blackbox.run_both([compiled(HERE / "thread_local.cpp")], timeout=60)


@pytest.mark.parametrize("options", ["defaults", "smallest caches", "purge thread"])
def test_ten_thousand_threads(compiled, options):
    blackbox.run_both([compiled(HERE / "many_threads.c"), 10000], env=OPTIONS[options], timeout=60)


def test_smallest_stack(compiled):
    blackbox.run_both([compiled(HERE / "tiny_stack.c")], timeout=60)


def test_cancelled_threads(compiled):
    blackbox.run_both([compiled(HERE / "cancel.c")], timeout=60)
