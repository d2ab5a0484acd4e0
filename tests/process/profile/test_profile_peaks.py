"""Protects the peak in use, and the draws of forked children."""

from pathlib import Path

import pytest
import wire

import blackbox

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def peaks(compiled, library):
    return compiled(HERE / "peaks.c", library, f"-Wl,-rpath,{library.parent}", "-pthread")


def test_forked_children_sample_different_calls(peaks, tmp_path):
    """Each child takes 90,000 blocks at 256 sites, of which 5,800 are samples. That two children choose the same calls
    by chance is out of the question."""
    result = blackbox.run([peaks, "fork"], env={
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


# What a process has in use beside its pattern's blocks, and what a look may miss or count too much by Z10
# (src/front/live.h): one run of each class in use, what the cache keeps, and blocks on their way between two threads.
BESIDE = 256 << 10
# Z10: the calls of one run are counted when it ends: up to 32 blocks, here of up to 64 KiB.
RUN = {"medium": 32 * 65536}


@pytest.mark.parametrize("pattern", ["small", "medium", "types", "sites", "rise", "pass"])
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_peak_is_exact(peaks, tmp_path, pattern, seed):
    """The peak's bytes are those that were in use, however few samples there are: no maximum over estimates."""
    path = tmp_path / "heap.gz"
    result = blackbox.run([peaks, pattern, seed], env={"HAKMEM_HEAP_PROFILE": str(path)})
    assert result.status == 0, result.report()
    truth, found = int(result.stdout), wire.read(path).total("peak_space")
    print(f"{pattern}: {truth:,} bytes, found {found:,}: {found / truth:.3f}")
    assert truth - truth / 64 - BESIDE - RUN.get(pattern, 0) <= found <= truth + BESIDE
