"""Protects the benchmark programs: preloaded and linked, same work on any allocator, and a wrong one is noticed."""

import os
import re
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"

# Small runs, and their number of operations if the arguments determine it.
RUNS = [
    (("bench_random_mixed", 200000, 4096, 1234567), 200000),
    (("larson", 0, 8, 128, 1024, 1, 12345, 4, 20), 4 * 20 * 1024 * 2),
    (("bench_phases", 5, 4, 2000, 20, 7), 5 * 4 * 2000 * 2),
    (("bench_big", 300, 10, 256, 1024, 7), 590),
    (("bench_fixed", 65536, 50, 3000, 7), 5950),
    (("bench_tiny_mt", 4, 100000, 16, 64), 4 * 100096),
    (("bench_producer_consumer", 2, 300, 7), 2 * 2 * 300 * 121),
    (("bench_thread_churn", 100, 100, 4, 7), 100 * 200),
    (("bench_string_builder", 50000, 64, 64, 7), None),
]
NAMES = [command[0] for command, _ in RUNS]


def operations(result):
    assert result.status == 0, result.report()
    line = re.search(r"^RESULT (.*)$", result.stdout, re.MULTILINE)[1]
    pairs = dict(pair.split("=") for pair in line.split())
    assert float(pairs["ops_per_s"]) > 0
    assert int(pairs["rss_peak_kib"]) > 500
    return int(pairs["ops"])


@pytest.mark.parametrize("command, expected", RUNS, ids=NAMES)
def test_same_work_on_any_allocator(library, command, expected):
    program, *arguments = command
    env = {"BENCH_VERIFY": "1", "BENCH_IDLE_MS": "20"}
    counts = {
        "system": operations(blackbox.run([BIN / program, *arguments], env=env)),
        "preloaded": operations(blackbox.run([BIN / program, *arguments], env=env, preload=library)),
        "linked": operations(blackbox.run([BIN / f"{program}_hakmem", *arguments], env=env)),
    }
    assert len(set(counts.values())) == 1, counts
    assert expected in (None, counts["system"])


@pytest.mark.parametrize("command", [command for command, _ in RUNS], ids=NAMES)
def test_a_wrong_allocator_is_noticed(compiled, command):
    wrong = compiled(Path(__file__).with_name("overlapping_malloc.c"), "-pthread", shared=True)
    program, *arguments = command
    result = blackbox.run([BIN / program, *arguments], preload=wrong)
    assert result.status == 1 and result.stderr, result.report()


@pytest.mark.parametrize("arguments", [["x"], ["-1"], ["1", "0"], ["1", "2", "3", "4"], [""]])
def test_wrong_arguments_are_named(arguments):
    result = blackbox.run([BIN / "bench_random_mixed", *arguments])
    assert result.status == 2
    assert "bench_random_mixed" in result.stderr
