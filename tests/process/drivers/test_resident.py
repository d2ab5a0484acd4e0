"""Protects bench_memory, and by it what HAKMEM makes resident and gives back (superslab/arrival.h, waiting.h)."""

import os
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PATTERNS = {
    "sparse": ("sparse", 300, 65536, 100),
    "zeroed": ("zeroed", 30, 1 << 20, 100),
    "payload": ("payload", 3000, 8),
    "random": ("random", 3, 50, 200000),
    "cache": ("cache", 3, 5000, 4),
    "phases": ("phases", 4),
    "shifting": ("shifting", 4, 5),
    "spike": ("spike", 2, 1000, 8),
    "scattered": ("scattered", 0, 8),
    "tenth": ("tenth", 2000, 1000),
}


def result(*arguments, preload=None, idles=False):
    """The pairs of the RESULT line."""
    env = {} if idles else {"BENCH_IDLE_MS": "0"}
    done = blackbox.run([BIN / "bench_memory", *arguments], preload=preload, env=env)
    assert done.status == 0, done.report()
    return dict(pair.split("=") for pair in done.stdout.splitlines()[-1].split()[1:])


def mib(pairs, key):
    return int(pairs[key]) / 1024


@pytest.mark.parametrize("arguments", PATTERNS.values(), ids=PATTERNS)
def test_same_work_on_any_allocator(library, arguments):
    system, own = result(*arguments), result(*arguments, preload=library)
    for key in ("name", "ops"):
        assert system[key] == own[key]
    if arguments[0] not in ("phases", "shifting"):  # where RSS is highest when is the allocator's affair
        assert system["live_kib"] == own["live_kib"]


@pytest.mark.parametrize("arguments, word", [
    (("no",), "PATTERN"), (("sparse", "10", "100"), "WRITTEN"), (("sparse", "0", "16", "16"), "BLOCKS"),
    (("phases", "1000"), "MIB")])
def test_wrong_arguments(arguments, word):
    done = blackbox.run([BIN / "bench_memory", *arguments])
    assert done.status != 0 and word in done.stderr, done.report()


@pytest.mark.skipif(THP.exists() and "[always]" in THP.read_text(),
                    reason="the system gives huge pages to whatever is mapped")
@pytest.mark.parametrize("size", [20000, 65536, 1 << 20, 3 << 20])
def test_a_block_costs_what_is_written(library, size):
    """A page of each block, and of each SuperSlab its header."""
    blocks = (512 << 20) // size
    pairs = result("sparse", blocks, size, 100, preload=library)
    assert mib(pairs, "full_kib") <= 1.3 * blocks * 4096 / (1 << 20) + 4


@pytest.mark.skipif(THP.exists() and "[always]" in THP.read_text(),
                    reason="the system gives huge pages to whatever is mapped")
@pytest.mark.parametrize("size", [512 << 10, 1 << 20, 3 << 20, 80000000])
def test_a_zeroed_block_costs_what_is_written(library, size):
    """Blocks that other blocks' memory serves, too."""
    blocks = max((256 << 20) // size, 1)
    pairs = result("zeroed", blocks, size, 100, preload=library)
    assert mib(pairs, "full_kib") <= 1.3 * blocks * 4096 / (1 << 20) + 4


def test_payload_of_200_sizes(library):
    """A class is at most a quarter larger than the one before, an eighth of a slab at most is no block (S3), and a unit
    of each SuperSlab is its header."""
    wrong = {}
    for step in range(200):
        size = round(16 * 2 ** (step * 18 / 199))
        pairs = result("payload", size, 32, preload=library)
        blocks = (32 << 20) // size
        usable = size + 16 if size < 128 else size * 5 / 4
        most = min(usable, (size + 4095) // 4096 * 4096) if size > 32768 else usable
        if mib(pairs, "full_kib") > blocks * most * 8 / 7 * 32 / 31 / (1 << 20) + 4:
            wrong[size] = pairs["full_kib"]
    assert not wrong


SPIKES = [("spike", others, size, 200) for others in (0, 1, 10) for size in (1000, 50000, 3000000)]
SPIKES += [("scattered", 0, 100), ("scattered", 1, 100)]


@pytest.mark.parametrize("spike", SPIKES)
def test_what_a_spike_leaves(library, spike):
    """Nothing is live, so the design's allowance is all that may stay (N7, N10). A loaded machine may come late to it."""
    held = []
    while len(held) < 4 and (not held or held[-1] > 24):
        held.append(mib(result(*spike, preload=library, idles=True), "held_kib"))
    assert held[-1] <= 24, held


def test_pages_between_blocks_leave(library):
    """A block of ten stays, on a page of two. A thread that is alone scrubs its slabs when blocks have come back so often
    that half as many are out as at the scrub before (N10), so that of other pages, half may stay."""
    pairs = result("tenth", 200000, 1000, preload=library)
    assert mib(pairs, "freed_kib") <= mib(pairs, "full_kib") * 3 / 4
