"""Protects the intervals of estimates: how often they hold the truth, and where they are shown."""

import json
import math
import random

import pytest
from making import TYPES, Making, run

from hakmem.heap.interval import Intervals, error_text, half_of, variances
from hakmem.heap.stacks import add_up

PERIOD = 512 * 1024
PEAK_TYPES = (*TYPES, ("peak_objects", "count"), ("peak_space", "bytes"))


def sampled(count, size, chance):
    """The number of samples among so many calls for a block of the size."""
    p = -math.expm1(-size / PERIOD)
    if count * p < 60 and count > 200:  # by the distances between samples
        at, found = 0, 0
        while (at := at + 1 + int(math.log(1 - chance.random()) / math.log(1 - p))) <= count:
            found += 1
        return found, 1 / p
    return sum(chance.random() < p for _ in range(count)), 1 / p


@pytest.mark.parametrize("parts", [[(64, 60_000)], [(64, 100_000), (4096, 3000)], [(100_000, 60)],
                                   [(48, 300_000), (65536, 100), (3 << 20, 7)]])
def test_coverage(parts):
    """Of 2,000 sums of samples, whose seeds are fixed, 95 % lie within their interval of the truth."""
    chance, held, rounds = random.Random(1), 0, 2000
    truth = sum(size * count for size, count in parts)
    for _ in range(rounds):
        rows = []
        for size, count in parts:
            found, weight = sampled(count, size, chance)
            rows.append((round(found * weight), round(found * weight * size)))
        variance = sum(variances(row, ((0, 1),), PERIOD)[1] for row in rows)
        objects, space = (sum(column) for column in zip(*rows, strict=True))
        half = half_of(variance, space / objects, PERIOD) if objects else 3 * PERIOD
        held += abs(space - truth) <= half
    print(f"{parts}: {held / rounds:.3f}")
    assert 0.92 * rounds <= held <= 0.98 * rounds


def known(period=PERIOD, peak=None):
    made = Making(PEAK_TYPES, period)
    small, large = made.location((("small", "a.c", 1),)), made.location((("large", "a.c", 2),))
    for place, count, size in ((small, 80_000, 64), (large, 10, 64 << 20)):
        made.profile.sample.add(location_id=[place], value=[count, count * size] * 3)
    if peak:
        made.profile.comment.append(made.text(f"peak of what is in use: 5 ms after the start, {peak} bytes, {peak} by "
                                              "samples"))
    return made.profile


def test_figures(tmp_path):
    """n blocks of s bytes have n s^2 (w - 1), and two samples more. Blocks that are all samples are exact."""
    path = tmp_path / "known.pb"
    path.write_bytes(known().SerializeToString())
    data = json.loads(run(path, "--json").output)
    weight = -1 / math.expm1(-64 / PERIOD)
    half = 1.96 * math.sqrt(80_000 * 64**2 * (weight - 1) + 2 * 64**2 * weight * (weight - 1))
    errors = {site["name"]: site["flat_error"] for site in data["sites"]}
    assert errors["small"]["inuse_space"] == round(half)
    assert errors["small"]["alloc_objects"] == round(half / 64)
    assert errors["large"]["inuse_space"] == 0
    assert data["totals_error"]["inuse_space"] == pytest.approx(half, rel=0.01)
    assert " ±" in run(path).output


def test_every_block_a_sample(tmp_path):
    path = tmp_path / "known.pb"
    path.write_bytes(known(period=1).SerializeToString())
    assert "±" not in run(path).output
    assert not any(json.loads(run(path, "--json").output)["totals_error"].values())


def test_files_of_different_rates():
    """Each file's samples have the variance of their own rate."""
    heap = add_up({"this": known(), "that": known(2 * PERIOD)})
    halves = [Intervals(heap).half(3, stack.values, stack.variances) for stack in heap.stacks]
    assert heap.period == 0 and halves[2] == pytest.approx(halves[0] * math.sqrt(2), rel=1e-3)


def test_the_peak_is_exact():
    """Its sum is, and what samples leave open of one site is what they leave open of the others."""
    total = 80_000 * 64 + 10 * (64 << 20)
    heap = add_up({"this": known(peak=total)})
    intervals, place = Intervals(heap), 5
    whole = [sum(stack.values[column] for stack in heap.stacks) for column in range(6)]
    variance = tuple(map(sum, zip(*(stack.variances for stack in heap.stacks), strict=True)))
    assert intervals.half(place, whole, variance) == 0
    halves = [intervals.half(place, stack.values, stack.variances) for stack in heap.stacks]
    # Of two parts, one of which is certain, the other is known as well.
    assert all(half < 1000 for half in halves)
    other = add_up({"this": known(peak=total // 2)})  # a sum that is not all that was in use
    assert Intervals(other).half(place, other.stacks[0].values, other.stacks[0].variances) > 1 << 20


def test_none_in_use():
    """Where blocks were allocated but none in use is a sample, less than 3 periods are with 95 % confidence."""
    made = Making(TYPES, PERIOD)
    made.profile.sample.add(location_id=[made.location((("gone", "a.c", 1),))], value=[80_000, 80_000 * 64, 0, 0])
    heap = add_up({"this": made.profile})
    stack = heap.stacks[0]
    assert Intervals(heap).half(3, stack.values, stack.variances) == 3 * PERIOD


@pytest.mark.parametrize("value, half, unit, text", [
    (37.7 * 2**20, 6.3 * 2**20, "bytes", " ±6.3"), (37.7 * 2**20, 26.3 * 2**20, "bytes", " ±26"),
    (1000, 0, "bytes", ""), (3 << 10, 1.45 * 2**20, "bytes", " ±1.4 MiB"),
    (4_000_000, 123_456, "count", " ±120,000"), (0, 1.5 * 2**20, "bytes", " ±1.5 MiB")])
def test_texts(value, half, unit, text):
    assert error_text(value, half, unit) == text
