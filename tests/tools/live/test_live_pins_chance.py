"""Protects the estimate of what sites' blocks keep (live/pins.py): a simulated allocator with samples, many times over.

Its seeds are fixed, so each figure is the same in every run."""

import math
import random
import statistics

import pytest

from hakmem.heap.interval import Intervals
from hakmem.heap.stacks import Heap, Stack
from hakmem.live.pages import PAGE
from hakmem.live.pins import Kept, Pick, Places, Slab, divide, pick_of

UNIT, UNITS = 65536, 31
HEADER = 5 * PAGE
TYPES = [("inuse_objects", "count"), ("inuse_space", "bytes"), ("kept_space", "bytes")]
RUNS = 120


class Allocator:
    """Has slabs of one unit with blocks of one size. A slab that empties serves again, before a new one. A thread's
    cache is a stack of freed blocks. A block is a number: slab * blocks + place."""

    def __init__(self, draw, size, chance):
        self.draw, self.size, self.chance, self.blocks = draw, size, chance, UNIT // size
        self.cache, self.live = [], {}  # block: site
        self.slabs, self.samples = 0, []  # (site, the slab of the block that it would have been)

    def top(self):
        """The block that the next call gets."""
        if not self.cache:
            self.cache = [self.slabs * self.blocks + place for place in range(self.blocks)][::-1]
            self.slabs += 1
        return self.cache[-1]

    def take(self, site):
        block = self.top()
        if self.draw.random() < self.chance:
            sample = (site, block // self.blocks)
            self.samples.append(sample)
            return sample
        self.cache.pop()
        self.live[block] = site
        return block

    def free(self, block):
        if isinstance(block, tuple):
            self.samples.remove(block)
        else:
            del self.live[block]
            self.cache.append(block)

    def pages(self, block):
        """[(page, bytes of the block on it)]"""
        start = block // self.blocks * UNIT + block % self.blocks * self.size
        end, found = start + self.size, []
        while start < end:
            stop = min(end, (start // PAGE + 1) * PAGE)
            found.append((start // PAGE, stop - start))
            start = stop
        return found

    def truth(self, huge):
        """{site: bytes that its blocks keep}, without samples. Huge pages: all SuperSlabs lie on them."""
        on, used, in_superslab = {}, {}, {}
        for block, site in self.live.items():
            in_superslab.setdefault(block // self.blocks // UNITS, []).append(site)
            for page, size in self.pages(block):
                on.setdefault(page, []).append(site)
                used[page] = used.get(page, 0) + size
        kept = {}
        for page, sites in on.items():
            for site in sites:
                kept[site] = kept.get(site, 0) + (PAGE - used[page]) / len(sites)
        for row, sites in in_superslab.items():
            rest = HEADER
            if huge:
                rest += UNITS * UNIT - PAGE * sum(page * PAGE // UNIT // UNITS == row for page in on)
            for site in sites:
                kept[site] = kept.get(site, 0) + rest / len(sites)
        return kept

    def places(self, huge):
        """What the tool reads: bitmaps and pages."""
        made, by_slab = Places((UNITS + 1) * UNIT), {}
        for block in self.live:
            by_slab.setdefault(block // self.blocks, []).append(block)
        for slab in range(self.slabs):
            blocks = by_slab.get(slab, [])
            pages = {}
            for block in blocks:
                for page, size in self.pages(block):
                    pages[page] = pages.get(page, 0) + size
            if blocks or huge:
                free = len(pages) * PAGE - sum(pages.values())
                whole = UNIT - len(pages) * PAGE if huge and blocks else 0
                made.put(Slab(len(blocks), Kept(free + whole, whole), slab // UNITS, False, self.size), [slab])
        for row in {slab.row for slab in made.slabs}:
            unused = 0
            if huge:
                unused = UNIT * (UNITS - sum(slab.row == row and slab.live > 0 for slab in made.slabs))
            made.superslabs[row].kept.add(Kept(unused, unused, HEADER))
        return made

    def picks(self, places):
        return [pick_of(places, site, self.size, 1 / self.chance, None, False, slab) for site, slab in self.samples]


def planted(seed, size, sample_bytes, keep, huge):
    """(the Allocator, the Places, {site: its Part}) of one run: two sites have long-lived blocks, 1 in 40, among brief
    ones that go in an order by chance, but for one in `keep`."""
    draw = random.Random(seed)
    heap = Allocator(draw, size, 1 - math.exp(-size / sample_bytes))
    brief = []
    for _ in range(3):  # what is long-lived stays from phase to phase
        for _ in range(4000):
            if draw.random() < 1 / 40:
                heap.take("many" if draw.random() < 0.75 else "few")
            else:
                brief.append(heap.take("brief"))
        brief.sort(key=lambda _: draw.random())  # shuffle() draws otherwise in some versions of Python
        for block in brief[len(brief) // keep:]:
            heap.free(block)
        del brief[len(brief) // keep:]
    places = heap.places(huge)
    return heap, places, divide(heap.picks(places), *places.by_size()[size], 0)


def stacks_of(heap, parts, sample_bytes):
    """The profile that the command makes of a run."""
    weight, stacks = 1 / heap.chance, []
    for site, part in parts.items():
        blocks = round(weight * sum(one == site for one, _ in heap.samples))
        stacks.append(Stack((), (blocks, blocks * heap.size, round(part.kept.bytes)), (0, 0, 0),
                            variances=(0.0, 0.0, part.variance)))
    return Heap(TYPES, stacks, [], sample_bytes, [], kept=(
        sum(stack.values[2] for stack in stacks), sum(part.variance for part in parts.values())))


@pytest.mark.parametrize("size, sample_bytes, keep, huge", [
    (256, 4096, 100000, False), (1024, 8192, 100000, False), (256, 4096, 20, False), (2048, 16384, 20, True),
    (256, 4096, 100000, True)])
def test_sites_have_their_parts(size, sample_bytes, keep, huge):
    """The sum is exact in each run. Over many runs each site's mean is the truth to a fiftieth of the sum, and the
    intervals hold the truth as often as they say."""
    errors, inside = {"many": [], "few": []}, 0
    for seed in range(RUNS):
        heap, places, parts = planted(seed, size, sample_bytes, keep, huge)
        truth, whole = heap.truth(huge), places.by_size()[size][0].bytes
        assert sum(truth.values()) == pytest.approx(whole)
        assert sum(part.kept.bytes for part in parts.values()) == pytest.approx(whole)
        found = stacks_of(heap, parts, sample_bytes)
        intervals, stacks = Intervals(found), dict(zip(parts, found.stacks))
        for site, of in errors.items():
            of.append(((parts[site].kept.bytes if site in parts else 0) - truth[site]) / whole)
            half = intervals.half(2, stacks[site].values, stacks[site].variances) if site in parts else 0
            inside += abs(of[-1]) * whole <= half
    assert all(abs(statistics.mean(of)) < 0.02 for of in errors.values())
    assert 0.92 * 2 * RUNS <= inside <= 0.98 * 2 * RUNS


def test_what_is_older_than_the_profile_has_no_site():
    """Half of the blocks have no samples, because the profile began later."""
    picks = [Pick(1, 9, 10, Kept(100)) for _ in range(1000)]
    kept = divide(picks, Kept(1800000), 18000, 18000)[1].kept.held
    assert 900000 <= kept <= 1.1 * 900000
    assert divide(picks, Kept(1800000), 18000, 0)[1].kept.held == pytest.approx(1800000)
    assert divide([], Kept(1800000), 18000, 0) == {}


def test_what_a_sample_stands_for():
    """A sample would be one block more in the slab where it does not lie. In a slab that is gone it would be alone."""
    places = Places(32 * UNIT)
    slab, other = Slab(3, Kept(600), 0, False, 512), Slab(5, Kept(1000), 0, False, 1024)
    places.put(slab, [7])
    places.put(other, [8, 9])
    places.superslabs[0].kept.add(Kept(headers=900))
    near = pick_of(places, 1, 512, 10, None, False, 7)
    assert (near.blocks, near.weight, near.each.held, near.each.headers) == (9, 10, 150, 100)
    there = pick_of(places, 1, 1024, 10, other, True, None)
    assert (there.blocks, there.each.held, there.each.headers) == (10, 200, 112.5)
    assert pick_of(places, 1, 2048, 10, None, False, 8).each.bytes == PAGE - 2048
    assert pick_of(places, 1, 512, 10, None, False, None).each is None
    for live, unit in ((1, 40), (2, 41)):
        places.put(Slab(live, Kept(3000), 1, False, 1536), [unit])
    assert pick_of(places, 1, 1536, 10, None, False, 50).each.held == 3000
    assert pick_of(places, 1, 512, 10, None, False, 8).each.bytes == 312.5  # as a block of the emptiest slab


def test_every_kind_is_divided():
    """Of what lies where no sample tells, sites have the same parts as of all bytes."""
    parts = divide([Pick(1, 9, 10, Kept(300)), Pick(2, 9, 10, Kept(100))], Kept(1600, 400, 800), 18, 0)
    assert [(part.kept.held, part.kept.huge, part.kept.headers) for part in parts.values()] == [
        (1200, 300, 600), (400, 100, 200)]


def test_variances_follow_the_scale():
    one, other = (divide([Pick(1, 9, 10, Kept(100)), Pick(2, 9, 10, Kept(100))], Kept(kept), 18, 0)[1]
                  for kept in (1800, 7200))
    assert (one.kept.held, one.variance) == (900, 10 * 9 * 100**2)
    assert (other.kept.held, other.variance) == (3600, 16 * one.variance)


def test_a_sample_whose_place_is_unknown_keeps_the_mean():
    parts = divide([Pick(1, 9, 10, Kept(300)), Pick(2, 9, 10, None)], Kept(1800), 18, 0)
    assert parts[1].kept.held == pytest.approx(1800 * 3 / 4) and parts[2].kept.held == pytest.approx(1800 / 4)
