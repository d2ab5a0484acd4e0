"""Protects the sums of allocations at the default rate: six patterns with known bytes and blocks for each site.

HAKMEM_SUMS_SEEDS is the number of seeds for each pattern: 4 if it is not set, 40 for the whole assertion (20 s)."""

import math
import os
from pathlib import Path

import pytest
import wire
from test_profile import Sums

import blackbox

HERE = Path(__file__).resolve().parent
RATE = 512 * 1024
SEEDS = int(os.environ.get("HAKMEM_SUMS_SEEDS", "4"))
MEBIBYTES = 1024
SIGMAS = 5
BOUND = 0.10  # of the truth: 95 of 100 runs must keep it


@pytest.fixture(scope="session")
def sums_program(compiled, library):
    return compiled(HERE / "sums.c", library, f"-Wl,-rpath,{library.parent}", "-pthread")


def truth_of(stdout):
    """{site: {"alloc_space" or "alloc_objects": (the truth, the standard deviation of an estimate by independent draws,
    the most that one sample adds)}}"""
    rows = {}
    for line in stdout.splitlines():
        site, size, blocks = line.split()
        rows.setdefault(site, []).append((int(size), int(blocks)))
    spread = {size: -1 / math.expm1(-size / RATE) - 1 for row in rows.values() for size, _ in row}
    return {
        site: {
            "alloc_space": (sum(size * blocks for size, blocks in row),
                            math.sqrt(sum(blocks * size * size * spread[size]
                                          for size, blocks in row)), max(size * (spread[size] + 1) for size, _ in row)),
            "alloc_objects": (sum(blocks
                                  for _, blocks in row), math.sqrt(sum(blocks * spread[size] for size, blocks in row)),
                              max(spread[size] + 1 for size, _ in row))
        } for site, row in rows.items()
    }


def deviations(sums_program, folder, pattern, seed):
    """A run's relative error of the sum of bytes, and its error of the sum of blocks in standard deviations. Each
    site's sums must lie within 5 standard deviations of the truth."""
    path = folder / f"{seed}.gz"
    result = blackbox.run([sums_program, pattern, str(seed), str(MEBIBYTES)], env={"HAKMEM_HEAP_PROFILE": str(path)})
    assert result.status == 0, result.report()
    sums, truths = Sums(wire.read(path), sums_program), truth_of(result.stdout)
    for site, kinds in truths.items():
        for kind, (truth, sigma, one) in kinds.items():
            # A site with few bytes has one sample or none.
            assert abs(sums(site, kind) - truth) <= SIGMAS * sigma + 2 * one + 1e-4 * truth, (pattern, seed, site, kind)
    totals = {kind: sum(kinds[kind][0] for kinds in truths.values()) for kind in ("alloc_space", "alloc_objects")}
    errors = {kind: sum(sums(site, kind) for site in truths) / total - 1 for kind, total in totals.items()}
    sigma = math.sqrt(sum(kinds["alloc_objects"][1] ** 2 for kinds in truths.values()))
    print(
        f"{pattern} {seed}: bytes {errors['alloc_space']:+.1%}, blocks {errors['alloc_objects']:+.1%} of "
        f"{totals['alloc_objects']:,}"
        f" (sigma {sigma / totals['alloc_objects']:.1%})")
    return errors["alloc_space"], errors["alloc_objects"], sigma / totals["alloc_objects"]


@pytest.mark.parametrize("pattern", ["churn_one", "churn_ten", "vectors", "maps", "messages", "batches"])
def test_sums(sums_program, tmp_path, pattern):
    runs = [deviations(sums_program, tmp_path, pattern, seed) for seed in range(SEEDS)]
    allowed = len(runs) // 20
    assert sum(abs(error) > BOUND for error, _, _ in runs) <= allowed
    # Blocks with a small share of the bytes have few samples.
    assert sum(abs(error) > max(BOUND, SIGMAS * sigma) for _, error, sigma in runs) <= allowed
    # No bias: the mean over all runs is as close as that number of independent draws brings it.
    bias = sum(error for error, _, _ in runs) / len(runs)
    assert abs(bias) <= SIGMAS * math.sqrt(RATE / (MEBIBYTES << 20) / len(runs)) + 1e-3
