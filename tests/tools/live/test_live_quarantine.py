"""Protects the quarantine of a hardened process in what tools tell: its blocks are free, and none of them is live."""

import json

import blackbox
import pytest
from conftest import HERE

from hakmem.live import ProcessMemory, snapshot

SECURE = blackbox.LIBRARY.parent / "libhakmem-secure.so"
# (requested size, block size of its class, number). The last is a span.
SIZES = [(700, 768, 3000), (3000, 3072, 2000), (20000, 20480, 40), (200000, 262144, 9)]


@pytest.fixture
def hardened(start, compiled, tmp_path):
    """known.c on a hardened HAKMEM, whose heap profile has every block."""
    return start([compiled(HERE / "known.c")], SECURE, {
        "HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap"),
        "HAKMEM_HEAP_PROFILE_RATE": "1"})


def row_of(shot, block):
    return next((row for row in shot.classes if row.block_size == block), None)


def test_freed_blocks_are_not_live(hardened, hakmem):
    taken = {}
    for size, _, count in SIZES:
        taken[size] = int(hardened.ask("take", size, count)[1])
    for size, _, count in SIZES:
        freed = int(hardened.ask("drop", size, 2)[0])
        shot = snapshot(ProcessMemory(hardened.pid))
        row = row_of(shot, next(row.block_size for row in shot.classes if row.block_size >= taken[size]))
        # The program's own blocks of the class: stdio's and those above.
        assert row.live_blocks - (count - freed) <= 2, (size, row)
        assert row.cached_blocks + row.free_blocks >= freed
        assert shot.totals.mapped == shot.totals.sum
    totals = json.loads(hakmem("stats", hardened.pid, "--json"))["totals"]
    assert totals["cached"] > 10 * 768
    hardened.ask("drop", 700, 1)
    profile = json.loads(hakmem("heap", hardened.pid, "--json"))["totals"]
    kept = sum(count - (count + 1) // 2 for size, _, count in SIZES if size != 700)
    assert profile["alloc_objects"] >= sum(count for _, _, count in SIZES)
    assert kept <= profile["inuse_objects"] < kept + 20, profile
    assert json.loads(hakmem("explain", hardened.pid, "--json"))["heap"]["cached"] > 0
