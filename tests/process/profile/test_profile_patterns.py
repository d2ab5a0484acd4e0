"""Protects the sums of allocations and the peak in use, in eighteen patterns with known truth, and forked draws."""

import math
from pathlib import Path

import pytest
import wire
from chance import bound
from test_profile import Sums

import blackbox

HERE = Path(__file__).resolve().parent
NAMES = ("churn_one churn_ten batches vectors strings maps messages threads aligned pages huge small medium types "
         "sites rise leak phases").split()

# What a process has in use beside its pattern's blocks, and what a look may miss or count too much by Z10
# (src/front/live.h): one run of each class in use, what the cache keeps, and blocks on their way between two threads.
BESIDE = 256 << 10
# Z10: the calls of one run are counted when it ends.
RUN = {"medium": 32 * 65536, "pages": 16 * 262144, "vectors": 16 * 131072, "threads": math.inf}


@pytest.fixture(scope="session")
def patterns(compiled, library):
    return compiled(HERE / "patterns.c", library, f"-Wl,-rpath,{library.parent}", "-pthread", "-lm")


@pytest.mark.parametrize("pattern", NAMES)
def test_pattern(patterns, tmp_path, pattern):
    """Each site's bytes, and those of all: 1 GiB by 2,048 samples is true to about 17 %. The peak's bytes are those
    that were in use, however few samples there are: no maximum over estimates."""
    path = tmp_path / "heap.gz"
    result = blackbox.run([patterns, pattern, "1"], env={"HAKMEM_HEAP_PROFILE": str(path)})
    assert result.status == 0, result.report()
    profile = wire.read(path)
    sums = Sums(profile, patterns)
    for line in result.stdout.splitlines():
        site, *values = line.split()
        allocated, _, _, peak, variance, one = map(int, values)
        found = profile.total("alloc_space") if site == "all" else sums(site, "alloc_space")
        most = bound(math.sqrt(variance), one) + one + 1e-4 * allocated
        print(f"{pattern}, {site}: {allocated} allocated, found {found}, bound {most:.0f}")
        assert abs(found - allocated) <= most, site
    found = profile.total("peak_space")
    print(f"{pattern}: {peak:,} bytes at the peak, found {found:,}")
    assert peak - peak / 64 - BESIDE - RUN.get(pattern, 0) <= found <= peak + BESIDE


def test_forked_children_sample_different_calls(patterns, tmp_path):
    """Each child takes 90,000 blocks at 256 sites, of which 5,800 are samples. That two children choose the same calls
    by chance is out of the question."""
    result = blackbox.run([patterns, "fork"], env={
        "HAKMEM_HEAP_PROFILE": f"{tmp_path}/%p.gz", "HAKMEM_HEAP_PROFILE_RATE": "4096"})
    assert result.status == 0, result.report()
    sites = []
    for path in tmp_path.iterdir():
        values = {}
        for sample in wire.read(path).samples:
            key = tuple(sample.addresses)
            values[key] = values.get(key, 0) + sample.values["alloc_objects"]
        sites.append(values)
    assert sorted(len(values) > 200 for values in sites) == [False, True, True, True]
    children = [values for values in sites if len(values) > 200]
    assert all(one != other for number, one in enumerate(children) for other in children[:number])
