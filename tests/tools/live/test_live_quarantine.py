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
def hardened(start, compiled):
    """known.c on a hardened HAKMEM, with further options."""
    return lambda **options: start([compiled(HERE / "known.c")], SECURE, {"HAKMEM_PURGE_DELAY": "3600000", **options})


def row_of(shot, taken):
    """The row of the class whose blocks have at least so many bytes."""
    return next(row for row in shot.classes if row.block_size >= taken)


def take_and_drop(program):
    """Takes blocks of all sizes, and frees half of each. Yields (size of a block, number, number freed) after each."""
    taken = {size: int(program.ask("take", size, count)[1]) for size, _, count in SIZES}
    for size, _, count in SIZES:
        yield taken[size], count, int(program.ask("drop", size, 2)[0])


def test_freed_blocks_are_not_live(hardened, hakmem):
    program = hardened()
    for taken, count, freed in take_and_drop(program):
        shot = snapshot(ProcessMemory(program.pid))
        row = row_of(shot, taken)
        # The program's own blocks of the class: stdio's and those above.
        assert row.live_blocks - (count - freed) <= 2, (taken, row)
        assert row.span or row.cached_blocks + row.free_blocks >= freed
        assert shot.totals.mapped == shot.totals.sum
    totals = json.loads(hakmem("stats", program.pid, "--json"))["totals"]
    assert totals["cached"] > 10 * 768
    assert json.loads(hakmem("explain", program.pid, "--json"))["heap"]["cached"] > 0


def test_freed_blocks_are_in_no_profile(hardened, hakmem, tmp_path):
    """The heap profile has every block."""
    program = hardened(HAKMEM_HEAP_PROFILE=str(tmp_path / "heap"), HAKMEM_HEAP_PROFILE_RATE="1")
    for taken, count, freed in take_and_drop(program):
        row = row_of(snapshot(ProcessMemory(program.pid)), taken)
        assert row.live_blocks - (count - freed) <= 2, (taken, row)
    program.ask("drop", 700, 1)
    profile = json.loads(hakmem("heap", program.pid, "--json"))["totals"]
    kept = sum(count - (count + 1) // 2 for size, _, count in SIZES if size != 700)
    assert profile["alloc_objects"] >= sum(count for _, _, count in SIZES)
    assert kept <= profile["inuse_objects"] < kept + 20, profile
