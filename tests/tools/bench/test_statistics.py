"""Protects the figures, by values computed by hand."""

import math

import pytest
import tool  # noqa: F401  (puts the package on the path)

from hakmem.bench import statistics

NAMES = ["mine", "other", "mine-again"]
ROWS = {"a": {"group": "driver"}, "b": {"group": "program"}}


def sample(row, allocator, number, time_s, **more):
    return {"row": row, "allocator": allocator, "round": number, "status": "ok", "time_s": time_s, **more}


def samples_of(row, times):
    return [sample(row, name, number, time) for name, values in times.items() for number, time in enumerate(values)]


def summarize(samples, rows=ROWS):
    return statistics.summarize(samples, rows, NAMES, "mine", "mine-again")


def test_ratios_are_of_one_round():
    mine = {0: {"t": 10}, 1: {"t": 30}, 2: {"t": 4}, 3: {"t": 1000}, 5: {"t": 7}}
    other = {0: {"t": 5}, 1: {"t": 10}, 2: {"t": 4}, 4: {"t": 1}, 5: {"t": 0}}
    assert statistics.ratios_by_round(mine, other, "t") == [2, 3, 1]


def test_interval_of_few_rounds_is_their_range():
    """The median of a resample of three rounds is the lowest with 7/27, far above the 2.5 % that are cut off."""
    assert statistics.interval([0.9, 1.0, 1.1]) == (0.9, 1.1)
    assert statistics.interval([0.5]) == (0.5, 0.5)
    assert statistics.interval([0.7] * 7) == (0.7, 0.7)


def test_interval_leaves_an_outlier_out():
    """With nine rounds, the median is the highest one if at least five draws are it: 0.1 %, less than 2.5 %. It is the
    second highest or above with 2.7 %."""
    low, high = statistics.interval([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 50.0])
    assert low in (1.0, 1.1, 1.2)
    assert high in (1.6, 1.7)
    assert (low, high) == statistics.interval([50.0, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0][::-1])


@pytest.mark.parametrize("low, high, rounds, verdict", [
    (0.8, 0.99, 7, "lower"), (1.01, 1.3, 7, "higher"), (0.9, 1.1, 7, "tie"), (1.0, 1.2, 7, "tie"), (0.5, 0.5, 1, "tie"),
])
def test_verdicts(low, high, rounds, verdict):
    assert statistics.verdict(low, high, rounds) == verdict


def test_medians_ratios_and_best():
    samples = samples_of("a", {"mine": [1, 2, 3], "other": [2, 4, 6], "mine-again": [1, 2, 3]})
    summary = summarize(samples, {"a": ROWS["a"]})
    assert summary["rows"]["a"]["mine"] == {"status": "ok", "time_s": 2}
    assert summary["rows"]["a"]["other"]["ratios"]["time"] == {
        "median": 0.5, "low": 0.5, "high": 0.5, "rounds": 3, "verdict": "lower"}
    assert summary["rows"]["a"]["mine-again"]["ratios"]["time"]["verdict"] == "tie"
    assert summary["best"]["a"]["time"] == {"allocator": "other", "ratio": 0.5, "low": 0.5, "high": 0.5}


def test_geometric_means_are_over_the_rows_that_both_completed():
    samples = samples_of("a", {"mine": [1, 1, 1], "other": [2, 2, 2]}) + samples_of(
        "b", {"mine": [8, 8, 8], "other": [1, 1, 1]})
    both = summarize(samples)["overall"]["other"]
    assert both["time"]["rows"] == 2
    assert both["time"]["median"] == pytest.approx(math.sqrt(0.5 * 8))
    assert both["time_programs"] == {"median": pytest.approx(8), "low": pytest.approx(8), "high": pytest.approx(8),
                                     "rows": 1}
    samples.append({"row": "b", "allocator": "other", "round": 3, "status": "crashed", "detail": "SIGSEGV"})
    summary = summarize(samples)
    assert summary["overall"]["other"]["time"]["median"] == pytest.approx(0.5)
    assert summary["overall"]["other"]["time"]["rows"] == 1
    assert "time_programs" not in summary["overall"]["other"]
    assert summary["rows"]["b"]["other"] == {"status": "crashed"}
    assert summary["best"]["b"] == {}


def test_a_subject_that_failed_is_compared_with_nothing():
    samples = samples_of("a", {"other": [1, 2, 3]})
    samples.append({"row": "a", "allocator": "mine", "round": 0, "status": "timeout", "detail": "no end after 1 s"})
    summary = summarize(samples, {"a": ROWS["a"]})
    assert "ratios" not in summary["rows"]["a"]["other"]
    assert summary["overall"]["other"] == {}


def test_the_mean_has_an_interval_of_its_rounds():
    mean = statistics.geometric_mean([[0.5, 1.0, 2.0], [0.5, 1.0, 2.0]])
    assert mean["median"] == pytest.approx(1.0)
    assert 0.5 <= mean["low"] < 1 < mean["high"] <= 2.0
    assert mean == statistics.geometric_mean([[0.5, 1.0, 2.0], [0.5, 1.0, 2.0]])


def test_no_ratio_to_a_figure_that_is_zero_or_missing():
    samples = [sample("a", "mine", 0, 1, soft_faults=5), sample("a", "other", 0, 2, soft_faults=0)]
    ratios = summarize(samples, {"a": ROWS["a"]})["rows"]["a"]["other"]["ratios"]
    assert set(ratios) == {"time"}


def test_half_width():
    assert statistics.half_width({"median": 2.0, "low": 1.9, "high": 2.1, "rounds": 5}) == pytest.approx(0.05)
    assert statistics.half_width({"median": 2.0, "low": 2.0, "high": 2.0, "rounds": 1}) == math.inf
