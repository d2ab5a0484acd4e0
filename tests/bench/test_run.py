"""The runner: what it measures, computes and writes."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import blackbox
import pytest

BENCH = blackbox.REPOSITORY / "bench"
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release"))
sys.path.insert(0, str(BENCH))

import rows  # noqa: E402  (of bench/)
import summary  # noqa: E402  (of bench/)


def run_bench(*arguments):
    command = [sys.executable, str(BENCH / "run.py"), "--build", str(BUILD), "--warm", "1", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_results_are_written(tmp_path):
    done = run_bench("--rounds", 2, "--scale", 0.002, "--rows", "random-mixed-256$", "--rows", "true", "--allocators",
                     "glibc,hakmem", "--no-idle", "--out", tmp_path, "--name", "small")
    assert done.returncode == 0, done.stderr
    [path] = tmp_path.glob("*-small.json")
    result = json.loads(path.read_text())
    assert result["rows"] == {"random-mixed-256": "bench_random_mixed 40000 256 42", "true": "true"}
    assert set(result["allocators"]) == {"glibc", "hakmem"}
    assert len(result["samples"]) == 2 * 2 * 2
    assert all(sample["peak_rss_kib"] > 500 for sample in result["samples"])
    entry = result["summary"]["random-mixed-256"]["glibc"]
    assert entry["ratios"]["ops_per_s"]["lowest"] <= entry["ratios"]["ops_per_s"]["median"]
    with open(path.with_suffix(".csv"), newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["allocator"] for line in lines] == [
        "glibc", "hakmem", "hakmem", "glibc", "hakmem", "glibc", "glibc", "hakmem"]
    assert "Throughput of hakmem" in done.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--allocators", "nosuch"], "no such allocator: nosuch"),
    (["--rows", "nosuch"], "no row matches"),
    (["--allocators", "glibc"], "subject hakmem"),
    (["--add", "mine=/nowhere.so"], "/nowhere.so is not there"),
])
def test_mistakes_are_named(arguments, message):
    done = run_bench(*arguments)
    assert done.returncode != 0
    assert message in done.stderr


def test_ratios_are_of_one_round():
    samples = [{"row": "r", "allocator": name, "round": number, "ops_per_s": rate}
               for number, rates in enumerate([(10, 5), (30, 10), (4, 4)]) for name, rate in zip("ab", rates)]
    samples.append({"row": "r", "allocator": "a", "round": 3, "ops_per_s": 1000})
    result = summary.summarize(samples, ["r"], ["a", "b"], "a")
    assert result["r"]["b"]["ratios"]["ops_per_s"] == {"median": 2, "lowest": 1, "highest": 3}
    assert result["r"]["b"]["ops_per_s"] == 5
    table = summary.ratio_table(result, ["a", "b"], "a", "ops_per_s", "title")
    assert "2.000 (1.00-3.00)" in table


def test_peak_is_the_programs_own(tmp_path):
    """The launcher's parent is big; what it reports of a small program is small."""
    ballast = bytearray(256 << 20)
    output = tmp_path / "out"
    subprocess.run([BUILD / "bin/bench_measure", output, "0", "", "true"], check=True, env=blackbox.environment())
    pairs = dict(pair.split("=") for pair in output.read_text().split())
    assert 300 < int(pairs["peak_rss_kib"]) < 8192 < len(ballast) >> 10
    assert pairs["status"] == "0"


def test_inputs_are_the_same_each_time(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rows.make_files(tmp_path / name)
    assert (tmp_path / "a/lines.txt").read_bytes() == (tmp_path / "b/lines.txt").read_bytes()
    assert 1_000_000 <= (tmp_path / "a/lines.txt").stat().st_size < 1_001_000
