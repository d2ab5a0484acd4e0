"""Protects `import hakmem` in a process with and without HAKMEM, and the pytest plugin."""

import json
import sys

import blackbox
import inprocess

def test_the_file_is_one_for_the_tools(asked):
    result = inprocess.hakmem("heap", asked / "heap.pb.gz", "--json")
    assert result.status == 0 and json.loads(result.stdout)["period"] == 1, result.report()


def test_another_malloc():
    code = ("import hakmem\nassert not hakmem.is_active()\n"
            "with hakmem.labels(tenant='a'):\n    pass\n"
            "for ask in (hakmem.stats, hakmem.heap_snapshot, lambda: hakmem.profile().__enter__(),\n"
            "            lambda: hakmem.Scope('a')):\n"
            "    try:\n        ask()\n    except hakmem.NotActive as error:\n        print(error)\n")
    result = blackbox.run([sys.executable, "-c", code])
    assert result.status == 0 and len(result.stdout.splitlines()) == 4, result.report()


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
    # What each test took, and its limit.
    said = [inprocess.figures(line) for line in result.stdout.splitlines() if "limit" in line]
    assert any({"20 MiB"} < set(found) and any(each.endswith("MiB") and each != "20 MiB" for each in found)
               for found in said), said
    assert any({"100 KiB"} < set(found) for found in said), said


def test_limits_on_another_malloc(tmp_path):
    result = plugin(tmp_path)
    assert {name for name, word in outcomes(result).items() if word == "PASSED"} == {"test_plain"}, result.report()
    skipped = plugin(tmp_path, "-o", "hakmem_absent=skip")
    assert skipped.status == 0 and "7 skipped" in skipped.stdout and "1 passed" in skipped.stdout, skipped.report()
