"""Protects hakmem heap --pins, which tells whose blocks keep memory: a program plants pins and knows what they keep."""

import json

import pytest
from conftest import HERE, command

from hakmem.live import ProcessMemory
from hakmem.live.pages import Pagemap

REGION = 2 << 20
SEEDS = range(1, 11)
PINS = ("often", "seldom", "rare")
# Long-lived blocks are 1 in 40 of all. The brief ones all go, but for each thread's first.
PLAN = {"one thread": ("plant", 256, 150000, 40, 150000, 1 << 40),
        "threads": ("plant", 1024, 30000, 40, 20000, 1 << 40),
        "huge pages": ("leave", 256, 150000, 40, 150000, 1 << 40),
        "waiting": ("leave", 1024, 30000, 400, 30000, 1 << 40)}
KINDS = ("one thread", "threads", "huge pages")
THREADS = {"one thread": 1, "threads": 4, "huge pages": 2, "waiting": 1}
# Nothing that waits leaves while huge pages are looked at, and caches are small.
SETTINGS = {"one thread": {"HAKMEM_THP": "never"}, "threads": {"HAKMEM_THP": "never"},
            "huge pages": {"HAKMEM_THP": "always", "HAKMEM_PURGE_DELAY": "1000000", "HAKMEM_CACHE_BYTES": "16K"},
            "waiting": {"HAKMEM_THP": "never", "HAKMEM_PURGE_DELAY": "1000000", "HAKMEM_PURGE_THREAD": "never"}}
# The intervals have 1.96 standard deviations. Seven are exceeded once in 10^11 runs.
SURE = 7 / 1.96


@pytest.fixture
def pinned(start, compiled, library):
    """pinned(kind, seed, mean) runs the program, with a profile of that mean, until it has planted its pins."""
    def run(kind, seed, mean):
        profile = {"HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": str(mean)}
        process = start([compiled(HERE / "pins.c")], library, {**profile, **SETTINGS[kind]})
        process.ask(*PLAN[kind], seed, THREADS[kind])
        if kind not in ("huge pages", "waiting"):
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


def looked_at(process):
    """(huge_regions, pins_of) of one state: the kernel may make huge pages meanwhile."""
    before = None
    while before != (bits := huge_regions(process)):
        before, data = bits, pins_of(process)
    return bits, data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_pins_are_named(pinned, kind, seed):
    """At least nine tenths of the bytes, whatever the samples are: the sum is exact, and no other site has blocks."""
    process = pinned(kind, seed, 8192)
    bits, data = looked_at(process)
    if kind == "huge pages" and "1" not in bits:
        pytest.skip("the kernel gives no huge pages: AnonHugePages is 0")
    truth = truth_of(process, bits)
    sites = {site["name"]: site for site in data["sites"]}
    named, planted = sum(sites[name]["kept"] for name in PINS if name in sites), sum(truth[name] for name in PINS)
    assert 0.9 * planted <= named <= 1.1 * planted
    for name in PINS[:2]:
        assert abs(sites[name]["kept"] - truth[name]) <= SURE * sites[name]["error"]
    assert (data["of_huge_pages"] > 0) == ("1" in bits)


def heap_of(process):
    """Resident bytes of live blocks, of free ones beside them, and of headers with HAKMEM's other records."""
    result = command("explain", "--json", process.pid)
    assert result.status == 0, result.report()
    heap = json.loads(result.stdout)["heap"]
    return sum(heap[part] for part in ("live", "fragmentation", "metadata"))


def test_they_leave_when_the_blocks_are_gone(pinned):
    """What --pins names leaves, and with it the blocks. The profile's own tables stay."""
    process = pinned("threads", 1, 8192)
    before, data = heap_of(process), pins_of(process)
    rows = [site for site in data["sites"] if site["name"] in PINS]
    freed = int(process.ask("gone")[0]) * 1024
    gone = before - heap_of(process)
    assert sum(row["kept"] for row in rows) + freed == pytest.approx(gone, rel=0.1)
    process.ask("dense", 512, 4000)
    assert not {site["name"] for site in pins_of(process)["sites"]} & set(PINS)


def test_exact_if_every_block_is_a_sample(pinned):
    process = pinned("one thread", 1, 1)
    data, truth = pins_of(process), truth_of(process, huge_regions(process))
    sites = {site["name"]: site for site in data["sites"]}
    assert data["exact"] and all(site["error"] == 0 for site in sites.values())
    # Headers are those of all SuperSlabs, also of some in which the program's own structures lie.
    assert sum(sites[name]["kept"] for name in PINS) == pytest.approx(sum(truth[name] for name in PINS), rel=0.01)
    named = sum(site["kept"] for site in sites.values()) + sum(row["bytes"] for row in data["by_no_site"])
    assert named == pytest.approx(data["kept"] + data["kept_by_caches"], abs=16)


def test_blocks_older_than_the_profile_have_no_site(start, compiled, library):
    """They keep as much as before, and the command says that it does not know whose they are."""
    process = start([compiled(HERE / "pins.c")], library, SETTINGS["one thread"])
    process.ask(*PLAN["one thread"], 1, 1)
    process.ask("trim")
    planted = sum(truth_of(process, huge_regions(process)).values())
    assert command("heap", "--start", "--rate", "8K", process.pid).status == 0
    process.ask("dense", 512, 4000)
    data = pins_of(process)
    kept = {site["name"]: site["kept"] for site in data["sites"]}
    assert "dense" in kept and not set(kept) & set(PINS)
    assert sum(row["bytes"] for row in data["by_no_site"]) >= 0.9 * planted


def test_of_one_size_the_older_blocks_have_no_site(start, compiled, library):
    """Of 5,750 blocks 2,000 have samples: some 235, which tell their number to 6 %."""
    process = start([compiled(HERE / "pins.c")], library, SETTINGS["one thread"])
    process.ask(*PLAN["one thread"], 1, 1)
    process.ask("trim")
    assert command("heap", "--start", "--rate", "2K", process.pid).status == 0
    process.ask("dense", 256, 2000)
    data = pins_of(process)
    (dense,), unnamed = data["sites"], sum(row["bytes"] for row in data["by_no_site"])
    assert dense["kept"] <= 0.6 * data["kept"] and unnamed >= 0.4 * data["kept"]


def test_what_waits_is_not_kept(pinned):
    """Most slabs are free, and wait."""
    process = pinned("waiting", 1, 1024)
    data, truth = pins_of(process), truth_of(process, huge_regions(process))
    waiting = json.loads(command("explain", "--json", process.pid).stdout)["waiting"]
    assert data["of_huge_pages"] == 0 and data["kept"] <= 1.1 * sum(truth.values()) < waiting


def test_what_would_help(pinned):
    """In order of bytes: a heap of its own for the site that keeps most; malloc_trim for huge pages."""
    process = pinned("one thread", 1, 8192)
    site, helps = pins_of(process)["sites"][0], pins_of(process)["helps"]
    assert (helps[0]["name"], helps[0]["site"], helps[0]["bytes"]) == ("heap", "often", site["kept"])
    process = pinned("huge pages", 1, 8192)
    bits, data = looked_at(process)
    if "1" not in bits:
        pytest.skip("the kernel gives no huge pages: AnonHugePages is 0")
    assert next(one["bytes"] for one in data["helps"] if one["name"] == "trim") == data["of_huge_pages"]
    process.ask("trim")
    assert pins_of(process)["of_huge_pages"] <= data["of_huge_pages"] / 10


def test_text_tree_page_and_explain(pinned, tmp_path):
    process = pinned("one thread", 1, 8192)
    page = tmp_path / "pins.html"
    for arguments in (("heap", "--pins"), ("heap", "--pins", "--tree"), ("explain", "--pins")):
        result = command(*arguments, process.pid)
        assert result.status == 0 and all(name in result.stdout for name in PINS[:2]), result.report()
    assert command("heap", "--pins", "--html", page, process.pid).status == 0
    assert '"often"' in page.read_text() and '"kept_space"' in page.read_text()
    data = json.loads(command("explain", "--pins", "--json", process.pid).stdout)
    assert data["pins"]["sites"][0]["name"] == "often"


def test_options_that_do_not_go_together():
    for other in ("--why", "--alloc", "--sizes"):
        command("heap", "--pins", other, 1).says(2, "--pins")
    command("heap", "--pins", HERE / "pins.c").says(2, "--pins")
