"""Protects hakmem heap --why, which explains Rss by site: a program has a known amount of each kind of memory."""

import json
import time

import pytest
from conftest import HERE, command

from hakmem.live import ProcessMemory, snapshot
from hakmem.live.moment import GOOD
from hakmem.live.why import why_of

MIB = 1 << 20
IDLE_SECONDS = 0.5
SECONDS_MOST = 60


@pytest.fixture
def program(start, compiled, library):
    """program(mean) runs it with a profile of that mean from its start, or without one if it is None."""
    def run(mean):
        profile = {} if mean is None else {
            "HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": str(mean)}
        return start([compiled(HERE / "why.c")], library, {"HAKMEM_THP": "never", **profile})
    return run


def told(pid, *options):
    """({site: its figures}, all data) from `hakmem heap --why --json`."""
    result = command("heap", "--why", "--json", *options, pid)
    assert result.status == 0, result.report()
    data = json.loads(result.stdout)["why"]
    return {site["name"]: site["flat"] for site in data["sites"]}, data


def test_every_kind_to_the_byte(program, monkeypatch):
    """Every block is a sample, so no figure is estimated. The command waits until busy()'s blocks have been written
    once more, however long that takes here. The processor marks a page as referenced only when it loads the page's
    entry anew, so the kernel may see a part of busy()'s pages: then the command runs again."""
    process = program(1)

    def wait(seconds):
        assert seconds == IDLE_SECONDS
        begun = int(process.ask("rounds", 0, 0)[0])
        while int(process.ask("rounds", 0, 0)[0]) < begun + 2:
            time.sleep(0.02)
    monkeypatch.setattr("hakmem.heap.why.why_of", lambda memory, idle, _: why_of(memory, idle, wait))
    slabs, held = map(int, process.ask("pin", 64, 100000))
    rounding, = map(int, process.ask("round", 1030, 1000))
    untouched, = map(int, process.ask("half", 8 * MIB, 4))
    idle, = map(int, process.ask("idle", 65536, 16))
    data = {"idle": {"referenced": 0}}
    end = time.monotonic() + SECONDS_MOST
    while data["idle"]["referenced"] < idle and time.monotonic() < end:
        sites, data = told(process.pid, "--idle", IDLE_SECONDS)
    assert data["exact"] and slabs >= 97 and held == slabs * (4096 - 64)
    assert (sites["pin"]["held_slabs"], sites["pin"]["held_space"]) == (slabs, held)
    assert sites["pin"]["held_superslabs"] >= 1
    assert sites["pin"]["inuse_space"] == slabs * 64 and "fill" not in sites
    assert sites["rounded"]["rounding_space"] == rounding == 1000 * (1152 - 1030)
    assert sites["rounded"]["held_slabs"] == 0
    assert sites["half"]["untouched_space"] == untouched and sites["half"]["inuse_space"] == 2 * untouched
    assert (sites["idle"]["idle_space"], sites["idle"]["inuse_space"]) == (idle, idle)
    assert (sites["busy"]["idle_space"], sites["busy"]["inuse_space"]) == (0, idle)
    assert all(sites[name]["untouched_space"] == 0 for name in ("pin", "rounded", "idle", "busy"))
    # The kernel's own marks agree: the referenced pages are busy()'s, and few more.
    assert idle <= data["idle"]["referenced"] < idle + 64 * 4096
    chain = {row["name"]: row["bytes"] for row in data["chain"]}
    assert chain["= live"] == chain["asked for"] + chain["rounding"]
    assert chain["untouched"] == -untouched
    assert sum(chain[name] for name in ("= live", "untouched", "held", "free in slabs", "thread caches",
                                        "retained", "metadata",
                                        "other memory")) + chain.get("change", 0) == chain["= Rss"]
    by_sites = sum(site["held_space"] for site in sites.values()) + sum(row["bytes"] for row in data["held_by_no_site"])
    assert by_sites == pytest.approx(chain["held"], abs=16)


def test_samples_tell_who_holds_slabs(program):
    """One site has one block in each slab, another fills its slabs, in one class. The first site's sample is in no slab
    of this kind, and often took the last block of the slab that it would have been in."""
    process = program(8192)
    count, = map(int, process.ask("every", 1024, 128000, 64))
    process.ask("dense", 1024, 20000)
    sites, data = told(process.pid)
    chain = {row["name"]: row["bytes"] for row in data["chain"]}
    assert not data["exact"]
    # Some 250 samples of pin(), each with a weight of eight blocks: a standard deviation of 7 %. Seven of them are
    # exceeded once in 10^11 runs.
    assert sites["pin"]["held_space"] == pytest.approx(chain["held"], rel=0.5)
    assert sites["pin"]["held_slabs"] == pytest.approx(count, rel=0.5)
    assert sites.get("dense", {"held_space": 0})["held_space"] < chain["held"] / 20


def test_many_ranges_of_pages_add_up(program):
    """The kernel returns resident ranges in parts. With thousands of ranges none is counted twice: the pages that were
    counted agree with Rss as well as a look has to."""
    process = program(None)
    process.ask("pin", 1024, 128000)
    made = why_of(ProcessMemory(process.pid)).explanation
    assert abs(made.difference) <= made.rss * GOOD


def test_thread_caches_and_no_profile(program):
    process = program(None)
    tid, = map(int, process.ask("cache", 256, 64))
    result = command("explain", "--sites", "--json", process.pid)
    data = json.loads(result.stdout)
    assert result.status == 0 and data["sites"] == []
    cached = {row["tid"]: row["bytes"] for row in data["thread_caches"]}
    chain = {row["name"]: row["bytes"] for row in data["chain"]}
    assert cached[tid] >= 32 * 256 and sum(cached.values()) == snapshot(ProcessMemory(process.pid)).totals.cached
    assert 0 < chain["thread caches"] <= sum(cached.values())
    text = command("explain", "--sites", process.pid).stdout
    assert str(tid) in text and "= Rss" in text and f"process {process.pid}" in text
    command("heap", "--why", process.pid).says(1, f"hakmem heap --start {process.pid}")


def test_tables_tree_and_page(program, tmp_path):
    process = program(1)
    process.ask("half", 8 * MIB, 4)
    process.ask("round", 1030, 100)
    page = tmp_path / "why.html"
    text = command("heap", "--why", process.pid).stdout
    for wanted in ("rounded", "11.91 KiB", "16 MiB", "why.c:"):
        assert wanted in text, (wanted, text)
    result = command("heap", "--why", "--of", "untouched", "--html", page, process.pid)
    assert result.status == 0, result.report()
    assert '"half"' in page.read_text()
    tree = command("heap", "--why", "--of", "untouched", "--tree", process.pid).stdout
    assert "16 MiB  100.0 %" in tree and "half" in tree


def test_options_that_do_not_go_together():
    for arguments in (("--idle", 1), ("--of", "held"), ("--why", "--of", "idle"), ("--why", "--alloc")):
        command("heap", *arguments, 1).says(2, arguments[-2] if arguments[-1] != "--alloc" else "--why")
