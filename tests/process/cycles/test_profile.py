"""Protects the cycle profile's figures, by calls of known number."""

import re
from pathlib import Path

import pytest

import blackbox
import profiling

FOLDER = Path(__file__).resolve().parent
BIN = blackbox.LIBRARY_FOLDER.parent / "bin"


@pytest.fixture(scope="module")
def known(compiled):
    return compiled(FOLDER / "known.c")


def between(program, kind, count):
    """The difference of the program's two reports, and the second report."""
    before, after = profiling.documents(profiling.run([program, kind, count]).stderr)
    return profiling.change(before, after), after


@pytest.mark.parametrize("count", [1, 999, 54321])
def test_every_call_is_counted_once(known, count):
    change, _ = between(known, "small", count)
    assert change.mallocs == count
    assert change.frees == count
    assert change.kinds["malloc_hit"] + change.kinds["malloc_miss"] == count
    assert change.kinds["free_hit"] + change.kinds["free_miss"] == count


def test_a_miss_is_one_refill(known):
    change, _ = between(known, "small", 50000)
    assert change.kinds["malloc_miss"] == change.kinds["refill"] > 100
    assert 0 < change.kinds["flush"] <= change.kinds["free_miss"] + change.kinds["refill"]


def test_spans_that_no_cache_serves_are_large(known):
    change, _ = between(known, "large", 50)
    assert change.mallocs == change.frees == 50
    assert change.kinds["malloc_large"] + change.kinds["malloc_hit"] == 50
    assert change.kinds["free_large"] + change.kinds["free_hit"] == 50
    assert change.kinds["malloc_large"] > 25 and change.kinds["free_large"] > 25


def test_huge_blocks(known):
    change, _ = between(known, "huge", 30)
    assert change.kinds["malloc_huge"] == change.kinds["free_huge"] == change.mallocs == change.frees == 30


def test_free_of_null_has_a_row_of_its_own(known):
    change, _ = between(known, "null", 77)
    assert change.kinds["free_null"] == change.frees == 77
    assert change.mallocs == 0


@pytest.mark.parametrize("kind", ["small", "large", "huge"])
def test_rows_agree_with_their_histograms(known, kind):
    _, profile = between(known, kind, 500)
    assert set(profile["kinds"]) == set(profiling.KINDS)
    for name, row in profile["kinds"].items():
        buckets = row["histogram"]
        assert sum(count for _, _, count in buckets) == row["count"], name
        if row["count"] == 0:
            assert row["p50"] is row["p99"] is row["max"] is row["mean"] is None
            continue
        assert row["p50"] <= row["p99"] <= row["max"], name
        assert row["mean"] == pytest.approx(row["sum"] / row["count"], abs=0.06)
        assert buckets[0][0] <= row["p50"] and buckets[-1][0] <= row["max"] <= buckets[-1][1], name
        least = sum(low * count for low, _, count in buckets)
        most = sum(high * count for _, high, count in buckets)
        assert least <= row["sum"] <= most, name
        for low, high, _ in buckets:
            assert low <= high <= low * (1 + 1 / 32), name


def quantile(buckets, percent):
    """The bucket that holds the given percentile."""
    rank, seen = -(-sum(count for _, _, count in buckets) * percent // 100), 0
    for low, high, count in buckets:
        seen += count
        if seen >= rank:
            return low, high
    raise AssertionError("no such quantile")


def test_quantiles_are_those_of_the_histograms(known):
    _, profile = between(known, "small", 20000)
    for name, row in profile["kinds"].items():
        for percent in (50, 99) if row["count"] else ():
            low, high = quantile(row["histogram"], percent)
            assert low <= row[f"p{percent}"] <= high, name


def test_a_miss_contains_its_refill(known):
    _, profile = between(known, "small", 50000)
    assert profile["kinds"]["malloc_miss"]["sum"] > profile["kinds"]["refill"]["sum"]
    overhead = profile["overhead"]
    assert 0 < overhead["empty_min"] <= overhead["empty_median"] and overhead["subtracted"] == overhead["empty_min"]


def test_the_frequency_is_what_a_program_measures(known):
    """The program reads two clocks, one after the other. Where it must wait between them, its figure is wrong."""
    for _ in range(20):
        result = profiling.run([known, "rate", 1])
        rates = [profile["frequency_hz"] for profile in profiling.documents(result.stderr)]
        if rates == [pytest.approx(int(result.stdout), rel=0.005)] * len(rates):
            return
    raise AssertionError(f"{rates} {result.report()}")


def test_coverage_of_random_mixed():
    profile, = profiling.documents(profiling.run([BIN / "bench_random_mixed", 1000000, 4096, 42]).stderr)
    for name, kinds in (("malloc", profiling.MALLOC), ("free", profiling.FREE)):
        coverage = profile["coverage"][name]
        assert coverage["calls"] == sum(profile["kinds"][kind]["count"] for kind in kinds) > 400000
        assert coverage["hits"] == profile["kinds"][f"{name}_hit"]["count"]
        assert coverage["share"] == pytest.approx(coverage["hits"] / coverage["calls"], abs=1e-6)
        assert coverage["share"] > 0.97


@pytest.mark.parametrize("form", ["1", "text"])
def test_the_table(known, form):
    text = profiling.run([known, "small", 2000], form).stderr
    lines = [line for line in text.splitlines() if line.startswith("hakmem: ")]
    rows = {line.split()[1]: line.split()[2:] for line in lines if len(line.split()) > 2}
    for kind in profiling.KINDS:
        assert kind in rows
    for name, kinds in (("malloc", profiling.MALLOC), ("free", profiling.FREE), ("refill", ["refill"]),
                        ("migration", ["flush", "drain"])):
        assert int(rows[name][0]) == sum(int(rows[kind][0]) for kind in kinds) > 0
        assert int(rows[name][4]) == max(int(rows[kind][4]) for kind in kinds if rows[kind][0] != "0")
    count, mean, p50, p99, most, mean_ns, p50_ns, p99_ns, most_ns = rows["malloc_hit"]
    assert int(count) > 1000
    assert int(p50) <= int(p99) <= int(most)
    rate = float(re.search(r"1,000 ticks are ([0-9.]+) ns", text)[1]) / 1000
    for ticks, ns in ((mean, mean_ns), (p50, p50_ns), (p99, p99_ns), (most, most_ns)):
        assert float(ns) == pytest.approx(float(ticks) * rate, rel=0.01, abs=0.2)


def test_prometheus_text(known):
    text = profiling.run([known, "small", 2000], "prometheus").stderr
    series = dict(re.findall(r"^(hakmem_\w+(?:\{[^}]*\})?) (\d+)$", text, re.M))
    for kind in profiling.KINDS:
        assert f'hakmem_cycles_count{{kind="{kind}"}}' in series
    assert int(series['hakmem_cycles{kind="malloc_hit",quantile="0.5"}']) <= int(
        series['hakmem_cycles_max{kind="malloc_hit"}'])
    assert text.count("# TYPE hakmem_cycles summary") == 2  # two reports


def test_off_nothing_is_said():
    result = blackbox.run([BIN / "bench_random_mixed", 1000, 100], preload=blackbox.LIBRARY)
    assert result.status == 0
    assert result.stderr == ""


def instructions_of_a_pair(known, env):
    counts = []
    for count in (10000, 60000):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", known, "thread", count]
        result = blackbox.run(command, preload=blackbox.LIBRARY, env=env, timeout=120)
        assert result.status == 0, result.report()
        counts.append(int(re.search(r"Collected : (\d+)", result.stderr)[1]))
    return (counts[1] - counts[0]) / 50000


def test_off_it_costs_a_few_instructions_a_call(known):
    """A hit pair of free(malloc(48)): 34 in a release build, about 8 more a call, and the loop's and the linker's."""
    assert 34 < instructions_of_a_pair(known, {}) < 75
    assert instructions_of_a_pair(known, {"HAKMEM_TINY_PROFILE": "json"}) > 100


def test_off_it_takes_no_memory():
    """Only the record for threads without one, in the library's zeroed data, which nobody touches."""
    sizes = []
    for env in ({}, {"HAKMEM_TINY_PROFILE": "json"}):
        result = blackbox.run(["grep", "VmSize", "/proc/self/status"], preload=blackbox.LIBRARY, env=env)
        sizes.append(int(result.stdout.split()[1]))
    assert 150 <= sizes[1] - sizes[0] <= 170


def test_a_bad_value_is_named():
    result = blackbox.run(["true"], preload=blackbox.LIBRARY, env={"HAKMEM_TINY_PROFILE": "csv"})
    assert result.status == 0
    assert result.stderr.startswith("hakmem: HAKMEM_TINY_PROFILE=csv ") and result.stderr.count("\n") == 1
