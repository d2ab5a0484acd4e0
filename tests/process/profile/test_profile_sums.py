"""Protects the sums of allocations at the default rate: six patterns with known bytes and blocks for each site."""

import math
from pathlib import Path

import pytest
import wire
from chance import bound, weight
from test_profile import Sums

import blackbox

HERE = Path(__file__).resolve().parent
RATE = 512 * 1024
MEBIBYTES = 1024


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
    spread = {size: weight(size, RATE) - 1 for row in rows.values() for size, _ in row}
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


@pytest.mark.parametrize("pattern", ["churn_one", "churn_ten", "vectors", "maps", "messages", "batches"])
def test_sums(sums_program, tmp_path, pattern):
    """Each site's sums, and the sums over all sites: of 1 GiB by 2,048 samples, the bytes are true to about 17 %."""
    path = tmp_path / "heap.gz"
    result = blackbox.run([sums_program, pattern, "1", str(MEBIBYTES)],
                          env={"HAKMEM_HEAP_PROFILE": str(path)})
    assert result.status == 0, result.report()
    sums, truths = Sums(wire.read(path), sums_program), truth_of(result.stdout)
    for kind in ("alloc_space", "alloc_objects"):
        rows = {site: kinds[kind] for site, kinds in truths.items()}
        estimates = {site: sums(site, kind) for site in rows}
        truths_of_all, sigmas, ones = zip(*rows.values(), strict=True)
        rows["all"] = (sum(truths_of_all), math.hypot(*sigmas), max(ones))
        estimates["all"] = sum(estimates.values())
        for site, (truth, sigma, one) in rows.items():
            print(f"{pattern}, {site}: {kind} {truth}, estimated {estimates[site]}, bound {bound(sigma, one):.0f}")
            assert abs(estimates[site] - truth) <= bound(sigma, one) + one + 1e-4 * truth, (site, kind)
