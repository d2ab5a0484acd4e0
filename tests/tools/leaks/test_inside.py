"""Protects `import hakmem` in a process with and without HAKMEM, the pytest plugin, and the display in a notebook."""

import sys
from html.parser import HTMLParser

import pytest

import blackbox
from chromium import chromium

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
except RuntimeError as error:
    assert "hakmem.profile()" in str(error)
else:
    raise AssertionError("no profile is taken")
with hakmem.profile(rate=1):
    hakmem.heap_snapshot()  # imports what reads profiles
before = bytes(400_000)
with hakmem.profile(rate=1) as heap:
    assert "being taken" in repr(heap)
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
assert heap.sites()[0][0] >= 3_000_000 and "in use in" in repr(heap), heap.sites()
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
    except ValueError as error:
        assert "is no label" in str(error)
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


def test_the_file_is_one_for_the_tools(asked):
    result = blackbox.run([sys.executable, "-m", "hakmem", "heap", asked / "heap.pb.gz"])
    assert result.status == 0 and "sampled" in result.stdout and "every block" in result.stdout, result.report()


class Frames(HTMLParser):
    """The iframes of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "iframe":
            self.found.append(dict(attributes))


def test_a_notebook_draws_it(asked, tmp_path):
    """The frame cannot access the notebook. In a real browser."""
    parser = Frames()
    parser.feed((asked / "cell.html").read_text())
    (frame,) = parser.found
    assert frame["sandbox"] == "allow-scripts" and frame["srcdoc"].startswith("<!DOCTYPE html>")
    with chromium(tmp_path) as driver:
        driver.get(f"file://{asked}/cell.html")
        driver.switch_to.frame(0)
        assert blackbox.wait_until(lambda: len(driver.find_elements("css selector", "#graph svg rect")) > 3)
        assert driver.execute_script("try { return String(parent.document.title) } catch (error) { return 'refused' "
                                     "}") == "refused"


def test_another_malloc():
    code = ("import hakmem\nassert not hakmem.is_active()\n"
            "with hakmem.labels(tenant='a'):\n    pass\n"
            "for ask in (hakmem.stats, hakmem.heap_snapshot, lambda: hakmem.profile().__enter__()):\n"
            "    try:\n        ask()\n    except hakmem.NotActive as error:\n        print(error)\n")
    result = blackbox.run([sys.executable, "-c", code])
    lines = result.stdout.splitlines()
    assert result.status == 0 and len(lines) == 3, result.report()
    assert all("does not run on HAKMEM" in line and "hakmem run -- python" in line for line in lines)


# ---- The plugin ----

TESTS = """
import ctypes, pytest
left = []

@pytest.fixture
def large():
    return bytes(80_000_000)

@pytest.mark.limit_hakmem("20 MB")
def test_small(large):
    assert len(bytearray(5_000_000)) + len(large) == 85_000_000

@pytest.mark.limit_hakmem("20 MB")
def test_peak():
    block = bytearray(b"x") * 30_000_000
    del block

@pytest.mark.limit_hakmem_leaks("100 KB")
def test_clean():
    [bytes(10_000) for _ in range(1000)]

@pytest.mark.limit_hakmem_leaks("100 KB")
@pytest.mark.limit_hakmem("1 GB")
def test_leak():
    left.append(bytes(300_000))

@pytest.mark.limit_hakmem_leaks("100 KB", warmups=1)
def test_once():
    if not hasattr(test_once, "table"):
        test_once.table = bytes(400_000)

@pytest.mark.limit_hakmem(1000)
def test_own_failure():
    assert bytes(10_000_000) == b"own"

@pytest.mark.limit_hakmem("many")
def test_wrong_mark():
    pass

def test_plain():
    pass
"""


def plugin(tmp_path, *options, **more):
    (tmp_path / "test_it.py").write_text(TESTS)
    return blackbox.run([
        sys.executable, "-m", "pytest", "-p", "hakmem.pytest_plugin", "-p", "no:cacheprovider", "-rA", "--tb=short",
        "--strict-markers", *options, tmp_path
    ], cwd=tmp_path, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, **more)


def outcomes(result):
    return {name: word for line in result.stdout.splitlines() for word in ("PASSED", "FAILED", "SKIPPED", "ERROR")
            if line.startswith(f"{word} test_it.py::") for name in [line.split("::")[1].split()[0]]}


def test_limits(tmp_path, library):
    result = plugin(tmp_path, preload=library)
    assert outcomes(result) == {"test_small": "PASSED", "test_peak": "FAILED", "test_clean": "PASSED",
                                "test_leak": "FAILED", "test_once": "PASSED",
                                "test_own_failure": "FAILED", "test_wrong_mark": "FAILED",
                                "test_plain": "PASSED"}, result.report()
    assert "MiB of memory, and its limit is 20 MiB" in result.stdout and "AssertionError" in result.stdout
    assert "KiB allocated, and its limit is 100 KiB:" in result.stdout
    assert "one size is wanted, such as '10 MB'" in result.stdout


def test_limits_on_another_malloc(tmp_path):
    result = plugin(tmp_path)
    assert result.stdout.count("this process does not run on HAKMEM") >= 6 and outcomes(
        result)["test_plain"] == "PASSED", result.report()
    skipped = plugin(tmp_path, "-o", "hakmem_absent=skip")
    assert skipped.status == 0 and "7 skipped" in skipped.stdout and "1 passed" in skipped.stdout, skipped.report()
