"""Protects hakmem bench instructions, from the command line to the tables and the file."""

import json
import re
import subprocess
import sys

import blackbox
import check
import pytest
import small_rows  # noqa: F401  (puts the package on the path)

from hakmem.bench import instructions_command

ROW = "tiny-16B-1"


def run(folder, *arguments):
    subject = check.default_subject()
    env = {**blackbox.environment(), "HAKMEM_BUILD_DIR": str(subject.programs.parent),
           "HAKMEM_PEERS_DIR": str(folder / "peers"), "PYTHONPATH": str(blackbox.REPOSITORY / "python"),
           "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "hakmem", "bench", "instructions", *map(str, arguments)]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=blackbox.HANG, check=False)


def test_the_table_and_the_file(tmp_path):
    """A copy of the library under another name costs the same, so no row is below every peer."""
    library, file = check.default_subject().library, tmp_path / "counts.json"
    done = run(tmp_path, "--rows", f"^{ROW}$", "--add", f"same={library}", "--add", f"gone={__file__}", "--json", file)
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert result["format"] == "hakmem-instructions 1" and list(result["rows"]) == [ROW]
    counts = {entry["allocator"]: entry for entry in result["instructions"]}
    assert set(counts) == {"glibc", "hakmem", "same", "gone"}
    # The clock is read a varying number of times.
    assert counts["hakmem"]["library"] == pytest.approx(counts["same"]["library"], rel=1e-4)
    assert counts["hakmem"]["library_per_op"] < counts["hakmem"]["per_op"] < counts["glibc"]["per_op"]
    assert counts["hakmem"]["per_op"] == pytest.approx(counts["hakmem"]["total"] / counts["hakmem"]["ops"], rel=1e-6)
    assert counts["gone"]["total"] is None and __file__ in counts["gone"]["reason"]
    assert re.search(rf"^{ROW} +[\d.]+ +{counts['hakmem']['per_op']:.2f} ", done.stdout, re.MULTILINE)
    assert re.search(r"^gone: ", done.stdout, re.MULTILINE)


def test_a_row_below_every_peer_is_marked():
    def verdict(**figures):
        return instructions_command.verdict(figures, "hakmem").plain

    assert verdict(hakmem=9.0, glibc=30.0, other=10.0) == "below all 0.900 other"
    assert verdict(hakmem=11.0, glibc=30.0, other=10.0) == "not below 1.100 other"
    assert verdict(hakmem=10.0, other=10.0) == "not below 1.000 other"
    assert verdict(hakmem=10.0, other=0.0) == "not below - other"
    assert verdict(hakmem=10.0) == "-" and verdict(other=10.0) == "-"


@pytest.mark.parametrize("arguments, told", [
    (("--rows", "nosuch"), "nosuch"),
    (("--allocators", "hakmem,nosuch"), "nosuch"),
    (("--json", "/nosuch/file"), "/nosuch/file"),
])
def test_a_mistake_is_named(tmp_path, arguments, told):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and told in done.stderr


def test_nothing_counted_is_an_error(tmp_path):
    """As on a machine without valgrind."""
    done = subprocess.run(
        [sys.executable, "-m", "hakmem", "bench", "instructions", "--rows", ROW, "--allocators", "hakmem"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(blackbox.REPOSITORY / "python"),
             "HAKMEM_PEERS_DIR": str(tmp_path), "HAKMEM_BUILD_DIR": str(check.default_subject().programs.parent)},
        capture_output=True, text=True, timeout=blackbox.HANG, check=False)
    assert done.returncode == 1 and "valgrind" in done.stdout and "Traceback" not in done.stderr
