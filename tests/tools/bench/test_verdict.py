"""Protects the two sentences of a comparison: they say what the figures allow, and no more."""

import random
import re

import pytest
import tool  # noqa: F401  (puts the package on the path)

from hakmem.bench import statistics
from hakmem.bench.verdict import Comparison, noise_of, range_of, verdict

# A difference with its range, in a verdict.
CLAIM = re.compile(r"\d % \(-?\d+ to -?\d+\)")
NAMES = ("mine", "mine-again", "glibc", "other")


def result_of(times, failed=()):
    """A result from {allocator: seconds by round}. Its memory is a thousand times as many KiB."""
    samples = [{"row": "program", "allocator": name, "round": number, "status": "ok", "time_s": value,
                "peak_rss_kib": 1000 * value} for name, values in times.items() for number, value in enumerate(values)]
    samples += [{"row": "program", "allocator": name, "round": 0, "status": "crashed", "detail": "SIGSEGV"}
                for name in failed]
    names = [*times, *failed]
    summary = statistics.summarize(samples, {"program": {"group": "program"}}, names, "mine", "mine-again")
    return {"subject": "mine", "allocators": dict.fromkeys(names), "samples": samples, "summary": summary}


def steady(level, rounds=7):
    return [level * (1 + number % 3 / 1000) for number in range(rounds)]


def test_a_range_is_that_of_the_sign_test():
    """All of six rounds lie on one side of the median with 1/32. Of nine, one may lie on the other with 5/128."""
    assert range_of([1, 2, 3, 4, 5]) is None
    found = range_of([6, 5, 4, 3, 2, 1])
    assert (found.low, found.middle, found.high) == (1, 3.5, 6)
    found = range_of([9, 8, 7, 6, 5, 4, 3, 2, 1])
    assert (found.low, found.middle, found.high) == (2, 5, 8)
    assert noise_of(range_of([0.9, 1, 1, 1, 1, 1.02])) == pytest.approx(1 / 0.9 - 1)


def test_two_sentences():
    found = verdict(
        result_of({"mine": steady(0.8), "mine-again": steady(0.801), "glibc": steady(1), "other": steady(0.7)}),
        "program")
    assert list(found) == ["time", "memory"]
    for sentence in found.values():
        assert re.search(r"\b20 % \(20 to 20\) less .*glibc.*\b14 % \(14 to 14\) more .*other.*\b0\.1 %", sentence)


def test_a_difference_within_the_noise_is_none():
    """Every round shows 1 % less, but two copies of one library differ by more."""
    times = {
        "mine": steady(0.99), "mine-again": [0.99 * (0.97 + number / 100) for number in range(7)], "glibc": steady(1)
    }
    found = verdict(result_of(times), "program")
    assert "glibc" in found["time"] and not CLAIM.search(found["time"])
    assert sorted(Comparison(result_of(times), "program", "time").leaders()) == ["glibc", "mine"]


@pytest.mark.parametrize("rounds", [1, 5])
def test_too_few_rounds_have_no_verdict(rounds):
    result = result_of({"mine": steady(0.1, rounds), "mine-again": steady(0.1, rounds), "glibc": steady(1, rounds)})
    found = verdict(result, "program")["time"]
    assert re.search(rf"\b{rounds} round", found) and not CLAIM.search(found)


def test_what_failed_is_left_out():
    result = result_of({"mine": steady(0.8), "mine-again": steady(0.8), "glibc": steady(1)}, failed=["other"])
    assert "other" not in verdict(result, "program")["time"]
    assert verdict(result_of({"glibc": steady(1)}, failed=["mine", "mine-again"]), "program") == {}
    assert verdict(result_of({"mine": steady(1), "mine-again": steady(1)}, failed=["glibc"]), "program") == {}


def test_nobody_wins_by_noise():
    """Of 200 comparisons of four equal libraries with ten per cent of noise, few name a fastest one."""
    draw, won, said = random.Random(7), 0, 0
    for _ in range(200):
        result = result_of({name: [draw.gauss(1, 0.1) for _ in range(7)] for name in NAMES})
        won += len(Comparison(result, "program", "time").leaders()) == 1
        said += CLAIM.search(verdict(result, "program")["time"]) is not None
    assert won <= 4 and said <= 4
