"""How far figures that were estimated from samples may lie from the truth.

A call for s bytes is a sample with the chance p = 1 - exp(-s / period), and a sample stands for w = 1 / p calls. So n
calls are estimated with the variance n (w - 1), and their bytes with n s^2 (w - 1). Variances of stacks add up."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hakmem.compat import zip_strict
from hakmem.units import UNITS, scaled

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile
    from hakmem.heap.stacks import Heap

# The interval's half, in standard deviations. With few samples the variance is itself uncertain: so many more are
# counted. If none is in use, with 95 % confidence less than NONE times the period is (exp(-3) = 0.05).
HALF, MORE, NONE = 1.96, 2, 3
# What is estimated: the pairs of sample types that count blocks and their bytes.
PAIRS = tuple((f"{kind}_objects", f"{kind}_space") for kind in ("alloc", "inuse", "peak"))
# What rounding may add to or take from the peak's sum.
ROUNDING = 1e-3
LIVE = re.compile(r"in use, counted without samples: (\d+) bytes")
TOTALS = re.compile(r"in use: \d+ bytes \+-")  # of which the intervals are told beside the totals
PEAK = re.compile(r"peak of what is in use: \d+ ms after the start, (\d+) bytes, (\d+) by samples")

Variances = tuple[float, ...]


def spare_calls(size: float, period: int) -> float:
    """Returns w - 1: the calls that a sample of the size stands for, besides itself."""
    if period <= 1 or size <= 0:
        return 0
    return 1 / math.expm1(min(size / period, 700))


def pairs_of(names: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the places of PAIRS among the sample types."""
    return [(names.index(objects), names.index(space)) for objects, space in PAIRS
            if objects in names and space in names]


def live_of(profile: Profile) -> int | None:
    """Returns the bytes in use, counted without samples; None if the profile does not tell."""
    found = next(filter(None, (LIVE.fullmatch(profile.string_table[place]) for place in profile.comment)), None)
    return int(found[1]) if found else None


def peak_of(profile: Profile) -> tuple[int, int] | None:
    """Returns the bytes in use at the peak, exactly and by samples; None if the profile does not tell."""
    found = next(filter(None, (PEAK.fullmatch(profile.string_table[place]) for place in profile.comment)), None)
    return (int(found[1]), int(found[2])) if found else None


def variances(values: Sequence[float], pairs: Sequence[tuple[int, int]], period: int) -> Variances:
    """Returns the variance of each value of a sample."""
    found = [0.0] * len(values)
    for objects, space in pairs:
        if values[objects] > 0:
            size = values[space] / values[objects]
            found[objects] = values[objects] * spare_calls(size, period)
            found[space] = found[objects] * size * size
    return tuple(found)


def added(one: Variances, other: Variances) -> Variances:
    """Returns the sums of two rows; an empty row stands for zeros."""
    return tuple(map(sum, zip_strict(one, other))) if one and other else one or other


def of_one(size: float, period: int) -> float:
    """Returns what one sample of the size adds to the variance of the bytes."""
    spare = spare_calls(size, period)
    return spare * (1 + spare) * size * size


def half_of(variance: float, size: float, period: int) -> float:
    """Returns the half of the interval of bytes. size: the mean size of the blocks."""
    return HALF * math.sqrt(variance + MORE * of_one(size, period))


class Intervals:
    """Gives the halves of intervals of 95 % for sums over some of the stacks of a heap."""

    def __init__(self, heap: Heap) -> None:
        self.period = heap.period  # 0: files differ; then only the variances count
        names = [name for name, _ in heap.types]
        self.partners = {place: pair for pair in pairs_of(names) for place in pair}
        # If the peak's bytes are all that were in use, their sum is exact, and samples divide it.
        self.exact: set[int] = set()
        # What blocks keep (live/pins.py): the total is exact, too, and samples divide it in proportion.
        self.kept = names.index("kept_space") if heap.kept and "kept_space" in names else None
        self.kept_total, self.kept_variance = heap.kept or (0, 0.0)
        self.scale, self.whole, self.total = 1.0, 0.0, 0
        if heap.peak and "peak_space" in names and not heap.compared:
            place, (exact, sampled) = names.index("peak_space"), heap.peak
            self.total = sum(stack.values[place] for stack in heap.stacks)
            if sampled and abs(self.total - exact) <= ROUNDING * exact:
                self.exact, self.scale = {place}, exact / sampled
                self.whole = sum(stack.variances[place] for stack in heap.stacks if stack.variances)

    def half(self, place: int, values: Sequence[int], variance: Variances) -> float:
        """Returns the half of the interval around a value; 0: it is exact, or not estimated. values: of the stacks, or
        the sums of values and base in a comparison. variance: the stacks' sum."""
        if variance and place == self.kept and self.period > 1:
            return self.half_of_kept(values, variance)
        if not variance or place not in self.partners or self.period == 1:
            return 0
        objects, space = self.partners[place]
        if values[objects] <= 0:
            return self.none(place, values)
        size = values[space] / values[objects]
        if place == objects:
            return HALF * math.sqrt(variance[place] + MORE * of_one(size, self.period) / (size * size))
        if place not in self.exact:
            return half_of(variance[place], size, self.period)
        rest = max(self.whole - variance[place], 0)
        if not rest:
            return 0
        # The sum was made exact by the parts' variances. What is left of a part's is v (1 - v / whole). The values were
        # multiplied by the scale, so their variances are `scale` times what they tell.
        own = variance[place] + MORE * of_one(size, self.period) * self.scale
        return HALF * math.sqrt(self.scale * own * rest / (own + rest))

    def half_of_kept(self, values: Sequence[int], variance: Variances) -> float:
        """Returns the half of the interval around what blocks keep. A ratio r of an exact total has the variance of
        the difference between the site's sum and r times the sum of all sites."""
        assert self.kept is not None
        objects, space = self.partners[min(self.partners)]
        if values[objects] <= 0 or not self.kept_total:
            return 0
        kept, own = values[self.kept], variance[self.kept]
        ratio = min(kept / self.kept_total, 1)
        more = MORE * of_one(values[space] / values[objects], self.period) * (kept / values[space])**2
        return HALF * math.sqrt(max(own * (1 - 2 * ratio) + ratio * ratio * self.kept_variance, 0) + more)

    def none(self, place: int, values: Sequence[int]) -> float:
        """Returns what may be in use where no sample is. Of calls without a sample nothing is known."""
        objects, space = next(iter(self.partners.values()))
        if values[objects] <= 0 or place in (objects, space):
            return 0
        size = values[space] / values[objects]
        if size > NONE * self.period:
            return 0
        most = min(NONE * self.period, values[space])
        return most if place == self.partners[place][1] else most / size


def error_text(value: float, half: float, unit: str) -> str:
    """Returns " ±6.3", to two digits and in the unit of the value's own text, or " ±1.5 GiB" in a larger unit; "" if
    the error would not be seen."""
    if half <= abs(value) * 5e-5:
        return ""
    if unit != "bytes":
        return f" ±{two_digits(max(half, 1)):,.0f}"
    number, of = scaled(half)
    own = scaled(abs(value))[1]
    if UNITS.index(of) > UNITS.index(own):
        return f" ±{two_digits(number):,.4g} {of}"
    return f" ±{two_digits(half / 1024.0 ** UNITS.index(own)):,.4g}"


def two_digits(value: float) -> float:
    """Returns the value, rounded to two digits."""
    return round(value, 1 - math.floor(math.log10(value)))
