"""Protects hakmem heap --pins, which tells whose blocks keep memory: a program plants pins, and knows what they keep."""

import json

import pytest
from conftest import HERE, command

from hakmem.live import ProcessMemory
from hakmem.live.pages import Pagemap

REGION = 2 << 20
SEEDS = range(1, 11)
PINS = ("often", "seldom", "rare")
# Long-lived blocks are 1 in 40 of all. The brief ones all go, but for each thread's first.
PLAN = {"one thread": ("plant", 256, 150000, 40, 150000, 1 << 40), "threads": ("plant", 1024, 30000, 40, 20000, 1 << 40),
        "huge pages": ("leave", 256, 150000, 40, 150000, 1 << 40)}
THREADS = {"one thread": 1, "threads": 4, "huge pages": 2}
# Nothing that waits leaves while huge pages are looked at, and caches are small.
SETTINGS = {"one thread": {"HAKMEM_THP": "never"}, "threads": {"HAKMEM_THP": "never"},
            "huge pages": {"HAKMEM_THP": "always", "HAKMEM_PURGE_DELAY": "1000000", "HAKMEM_CACHE_BYTES": "16K"}}
# The intervals have 1.96 standard deviations. Seven are exceeded once in 10^11 runs.
SURE = 7 / 1.96


@pytest.fixture
def pinned(start, compiled, library):
    """pinned(kind, seed, mean) runs the program, with a profile of that mean, until it has planted its pins."""
    def run(kind, seed, mean):
        profile = {"HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": str(mean)}
        process = start([compiled(HERE / "pins.c")], library, {**profile, **SETTINGS[kind]})
        process.ask(*PLAN[kind], seed, THREADS[kind])
        if kind != "huge pages":
            process.ask("trim")
        return process
    return run


def huge_regions(process):
    """A 1 for each region of the program that lies on a huge page, by the kernel's map of pages."""
    memory = ProcessMemory(process.pid)
    with Pagemap(process.pid) as pages:
        sweep = pages.sweeps(memory.mappings())[0]
    return "".join(str(int(sweep.is_huge(int(address, 16), REGION))) for address in process.ask("regions"))


def truth_of(process, bits):
    """{function: free bytes that its blocks keep}, as the program has them."""
    told = process.ask("truth", bits)
    return {name: int(kept) for name, _, kept in zip(told[::3], told[1::3], told[2::3])}


def pins_of(process):
    result = command("heap", "--pins", "--json", process.pid)
    assert result.status == 0, result.report()
    return json.loads(result.stdout)["pins"]


@pytest.mark.parametrize("kind", PLAN)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_pins_are_named(pinned, kind, seed):
    """At least nine tenths of the bytes, whatever the samples are: the sum is exact, and no other site has blocks."""
    process = pinned(kind, seed, 16384)
    bits = huge_regions(process)
    if kind == "huge pages" and "1" not in bits:
        pytest.skip("the kernel gives no huge pages: AnonHugePages is 0")
    truth, data = truth_of(process, bits), pins_of(process)
    sites = {site["name"]: site for site in data["sites"]}
    named, planted = sum(sites[name]["kept"] for name in PINS if name in sites), sum(truth[name] for name in PINS)
    assert 0.9 * planted <= named <= 1.1 * planted
    for name in PINS[:2]:
        assert abs(sites[name]["kept"] - truth[name]) <= SURE * sites[name]["error"]
    assert (data["of_huge_pages"] > 0) == ("1" in bits)
