"""Fixtures: the program that loses memory in known ways, and runs of `hakmem leaks` on it."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
HAKMEM = [sys.executable, "-m", "hakmem"]


@dataclass(frozen=True)
class Looked:
    """A run of `hakmem leaks`, and its JSON reports, one for each process."""

    result: blackbox.Result
    reports: list

    def site(self, function, report=0):
        """The site with this function among its frames."""
        (found,) = (site for site in self.reports[report]["sites"]
                    if any(frame["name"].partition("(")[0] == function for frame in site["frames"]))
        return found


def hakmem(*words, env=None, **more):
    return blackbox.run([*HAKMEM, *words], env={"HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300", **(env or {})},
                        **more)


@pytest.fixture(scope="session")
def program(compiled):
    return compiled(Path(__file__).with_name("leaks.cpp"), "-pthread", "-O1", "-g")


@pytest.fixture(scope="session")
def leaks(program, tmp_path_factory):
    """leaks(words, *options) runs hakmem leaks on the program with these words, once a session for the same words."""
    known = {}

    def look(words, *options, env=None):
        key = (tuple(words), tuple(map(str, options)))
        if key not in known:
            file = tmp_path_factory.mktemp("leaks") / "leaks.json"
            result = hakmem("leaks", "--json", file, *options, "--", program, *words, env=env)
            known[key] = Looked(result, json.loads(file.read_text()) if file.exists() else [])
        return known[key]

    return look


INSIDE = """
import hakmem
assert hakmem.is_active()
one = hakmem.stats()
kept = bytes(50_000_000)
two = hakmem.stats()
assert one["mapped"] == sum(one[name] for name in ("live", "cached", "free_in_slab", "retained", "metadata")), one
assert 50_000_000 <= two["live"] - one["live"] < 51_000_000, (one, two)
del kept
try:
    hakmem.heap_snapshot()
except RuntimeError:
    pass
else:
    raise AssertionError("no profile is taken")
with hakmem.profile(rate=1):
    hakmem.heap_snapshot()  # imports what reads profiles
before = bytes(400_000)
with hakmem.profile(rate=1) as heap:
    kept = [bytes(100_000) for _ in range(30)]
    dropped = [bytes(200_000) for _ in range(10)]
    first = hakmem.heap_snapshot()
    del dropped, before
    more = bytearray(3_000_000)
    second = hakmem.heap_snapshot()
assert 30 * 100_000 + 3_000_000 <= heap.in_use < 1.2 * 6_000_000, repr(heap)
# Two snapshots are in it, too.
assert 8_000_000 <= heap.allocated < 12_000_000 and heap.blocks_in_use >= 31, repr(heap)
change = second.compare(first).in_use
assert 3_000_000 - 10 * 262_144 < change < 2_000_000, change
assert heap.sites()[0][0] >= 3_000_000, heap.sites()
with hakmem.profile(rate=1):
    with hakmem.profile(rate=1) as inner:
        pass
    hakmem.heap_snapshot()  # the inner one has left the outer one's samples on
assert inner.in_use < 100_000, repr(inner)
with hakmem.profile(rate=1) as heap:
    with hakmem.labels(tenant="a", part=(4096, "bytes")):
        kept = [bytes(100_000) for _ in range(10)]
        with hakmem.labels(tenant="b", rows=-7):
            kept += [bytes(100_000) for _ in range(20)]
        kept += [bytes(100_000) for _ in range(30)]
    kept += [bytes(100_000) for _ in range(40)]
found = {}
for stack in heap.found.stacks:
    if stack.values[2] and stack.values[3] // stack.values[2] >= 100_000:
        found[stack.labels] = found.get(stack.labels, 0) + stack.values[2]
outer, inner = (("part", "4096 bytes"), ("tenant", "a")), (("part", "4096 bytes"), ("rows", "-7"), ("tenant", "b"))
assert (found[outer], found[inner]) == (40, 20) and 40 <= found[()] < 50, found
for wrong in ("a\\nb", "a\\0b", 1.5, 1 << 63, "x" * 200):
    try:
        with hakmem.labels(tenant=wrong):
            pass
    except ValueError:
        continue
    raise AssertionError(wrong)
for wrong in (0, -1, "1M", 1.5):
    try:
        with hakmem.profile(rate=wrong):
            pass
    except ValueError:
        continue
    raise AssertionError(wrong)
import sys
heap.save(sys.argv[1])
open(sys.argv[2], "w").write("<!DOCTYPE html><title>notebook</title>" + heap._repr_html_())
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory, library):
    """A process on HAKMEM that uses all of it. Yields the folder with its files."""
    folder = tmp_path_factory.mktemp("inside")
    result = blackbox.run([sys.executable, "-c", INSIDE, folder / "heap.pb.gz", folder / "cell.html"], preload=library)
    assert result.status == 0, result.report()
    return folder
