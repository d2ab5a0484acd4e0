"""Made-up samples: two SuperSlabs, two classes, three heaps."""

import time

from hakmem.live.memory import NoProcess
from hakmem.live.model import (ACTIVE, DIRTY, UNTOUCHED, WARM, Huge, Pool, SizeClass, Slab, Snapshot, Thread, Totals,
                               Units)
from hakmem.live.resident import Resident
from hakmem.live.sample import Sample

MIB = 1 << 20
SIZES = [0, 16, 1024]
BLOCKS = [0, 4096, 64]


def units():
    """SuperSlab 1: heap 2 has two slabs of class 1, heap 3 one of class 2. SuperSlab 2: heap 3 has one of class 2, and
    one warm unit."""
    slabs = [Slab(row, unit, 1, class_id, used, owner, cached) for row, unit, class_id, used, cached, owner in (
        (0, 1, 1, 4000, 100, 2), (0, 2, 1, 1000, 0, 2), (0, 3, 2, 64, 4, 3), (1, 1, 2, 10, 10, 3))]
    state = [bytearray([UNTOUCHED] * 32) for _ in range(2)]
    for slab in slabs:
        state[slab.row][slab.first] = ACTIVE
    state[1][2], state[1][3] = WARM, DIRTY
    return Units(number=[1, 2], address=[2 * MIB, 4 * MIB], tier=[1, 2], huge_pages=[True, False],
                 decommitted=[False, False], state=[bytes(row) for row in state], slabs=slabs)


def counters(number):
    return {"refills": 100 * number, "flushes": 50 * number, "slabs_carved": number, "remote_blocks": 7 * number}


def made(step=0, at=None):
    """Sample number `step` of a process that allocates, one second apart."""
    shot = Snapshot(
        time=time.time(), pid=4242, command="made-up", version="9.9", totals=Totals(
            mapped=20 * MIB, live=9 * MIB, cached=MIB, free_in_slab=2 * MIB, retained=6 * MIB, metadata=2 * MIB,
            purged=3 * MIB, huge_live=8 * MIB, huge_blocks=1, footprint_peak=16 * MIB, superslabs=2, heaps=3,
            live_threads=1),
        classes=[SizeClass(1, 16, 2, 4900 + step, 100, 3192 - step, False), SizeClass(2, 1024, 2, 60, 14, 54, False)],
        threads=[Thread(1, "house", "orphan", None, "", 0, 0, 0, 0, 0, 0, counters(0)),
                 Thread(2, "thread", "live", 4242, "main", 2, 131072, 78400, 1600, 0, 0, counters(step)),
                 Thread(3, "thread", "orphan", None, "", 2, 131072, 61440, 14336, 1, 2, counters(2 * step)),
                 Thread(4, "thread", "unused", None, "", 0, 0, 0, 0, 0, 0, counters(0))],
        pools=[Pool("HOT", 1, 3, 0, 0, 28), Pool("EMPTY", 0, 0, 0, 0, 0)],
        huge=[Huge(0x7f0000000000, 8 * MIB, True, None)], counters=counters(3 * step), options={}, block_sizes=SIZES,
        class_blocks=BLOCKS, units=units(), head=(0, 2 * MIB), metadata_slots=[], superslab_size=2 * MIB,
        unit_size=65536, cached_blocks={}, block_pools=[], scopes=[])
    resident = Resident(live=8 * MIB, cached=MIB, free_in_slab=MIB, retained=2 * MIB, metadata=MIB, other=7 * MIB,
                        superslabs=[2 * MIB, 65536])
    return Sample(at=float(step) if at is None else at, took=0.01, shot=shot, rss=20 * MIB + 4096 * step,
                  resident=resident, minor_faults=10 * step, major_faults=0)


class FakeSampler:
    """Takes `count` made-up samples, and then the process has ended. `errors` = {step: error raised instead}."""

    def __init__(self, count=1000000, errors=None):
        self.count, self.errors, self.taken = count, errors or {}, 0

    def take(self):
        self.taken += 1
        if self.taken - 1 in self.errors:
            raise self.errors[self.taken - 1]
        if self.taken > self.count:
            raise NoProcess("process 4242 ended while it was read")
        return made(self.taken - 1)
