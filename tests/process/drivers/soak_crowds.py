"""Protects what threads hold: resident memory for each thread of a crowd, which depends on how they are scheduled."""

import pytest

import blackbox
from test_large_and_many import THREADS, pairs_of


@pytest.mark.parametrize("threads, blocks, once, most_kib", [(1, 64, 16, 400), (100, 64, 16, 150), (1000, 64, 16, 95),
                                                             (1000, 4, 1, 30), (4000, 64, 16, 64)])
def test_what_a_crowd_holds(library, threads, blocks, once, most_kib):
    """Threads that share heaps need no page for each class. With own heaps, 1,000 held 143 KB of 64 blocks, 55 KB of
    4."""
    told = pairs_of(blackbox.run([THREADS, threads, blocks, 5, once, 0], preload=library, env={"HAKMEM_THP": "never"}))
    assert told["thread_live_bytes"] < told["thread_held_bytes"] <= most_kib * 1024


@pytest.mark.parametrize("blocks, once, most_kib", [(64, 16, 103), (4, 1, 33)])
def test_what_a_crowd_holds_with_a_profile(library, tmp_path, blocks, once, most_kib):
    """A thread of these takes a sample or none, and few blocks of a class. When its first sample touched all the memory
    for stacks, what is counted down had a page of its own, and runs grew at once, they held 109 and 36 KiB."""
    told = pairs_of(blackbox.run([THREADS, 1000, blocks, 5, once, 0], preload=library,
                                 env={"HAKMEM_THP": "never", "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz")}))
    assert told["thread_held_bytes"] <= most_kib * 1024
    assert (tmp_path / "heap.gz").stat().st_size > 0
