"""The verdict of a comparison, in two sentences: one about time, one about memory.

A figure differs if the 95 % range of its median ratio lies on one side of 1 and the median is further from 1 than
two copies of one library were. The range is that of the sign test: it depends only on the order of the rounds'
ratios, so it holds for any kind of noise. It needs six rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hakmem.bench import statistics
from hakmem.bench.allocators import again
from hakmem.report.figures import listed

if TYPE_CHECKING:
    from hakmem.records import Result, Sample

ROUNDS_LEAST = 6
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Range:
    """A ratio: its median, and the range in which the median lies with 95 % confidence."""

    middle: float
    low: float
    high: float


def range_of(ratios: Sequence[float]) -> Range | None:
    """Returns the Range of the ratios; None if there are too few rounds."""
    count = len(ratios)
    if count < ROUNDS_LEAST:
        return None
    ordered, outside, tail = sorted(ratios), 0, 0.0
    while True:
        tail += math.comb(count, outside) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        outside += 1
    return Range(statistics.middle_of(ordered), ordered[outside - 1], ordered[count - outside])


def noise_of(found: Range | None) -> float:
    """Returns how far two copies of one library differ: the larger side of their range, as a share."""
    return max(found.high, 1 / found.low) - 1 if found else 0.0


def differs(found: Range, noise: float) -> int:
    """Returns -1 for less, 1 for more, 0 if the difference may be noise."""
    if found.high < 1 and 1 / found.middle - 1 > noise:
        return -1
    if found.low > 1 and found.middle - 1 > noise:
        return 1
    return 0


class Comparison:
    """One figure of one row, on all allocators that completed the row."""

    def __init__(self, result: Result, row: str, figure: str) -> None:
        self.subject, self.key = result["subject"], statistics.FIGURES[figure]
        self.runs: dict[str, dict[int, Sample]] = statistics.group_samples(result["samples"]).get(row, {})
        entries = result["summary"]["rows"].get(row, {})
        # The median of each allocator that completed the row.
        self.middles = {name: middle for name in result["allocators"] if name != again(self.subject)
                        and entries.get(name, {}).get("status") == "ok"
                        and (middle := self.middle(name)) is not None}
        self.names = list(self.middles)
        copy = again(self.subject)
        complete = entries.get(copy, {}).get("status") == "ok" and self.subject in self.names
        self.noise = noise_of(self.range(self.subject, copy)) if complete else 0.0
        self.rounds = max((len(self.runs[name]) for name in self.names), default=0)

    def middle(self, name: str) -> float | None:
        """Returns an allocator's median; None if it has none."""
        return statistics.middle(self.runs.get(name, {}).values(), self.key)

    def range(self, name: str, other: str) -> Range | None:
        """Returns the Range of the first allocator's figure divided by the second's."""
        return range_of(statistics.ratios_by_round(self.runs[name], self.runs[other], self.key))

    def leaders(self) -> list[str]:
        """Returns the allocator with the least median, and those that cannot be told from it."""
        ordered = sorted(self.names, key=lambda name: self.middles[name])
        if not ordered:
            return []
        best, *others = ordered
        return [best, *(name for name in others
                        if (found := self.range(best, name)) and differs(found, self.noise) == 0)]

    def sides(self) -> tuple[dict[str, Range], dict[str, Range], dict[str, Range]]:
        """Returns {name: Range} three times: the subject is below, it is above, it cannot be told from them."""
        sides: dict[int, dict[str, Range]] = {-1: {}, 1: {}, 0: {}}
        for name in self.names:
            if name != self.subject:
                found = self.range(self.subject, name)
                if found:
                    sides[differs(found, self.noise)][name] = found
        return sides[-1], sides[1], sides[0]


def percent(share: float) -> str:
    """Returns a share as a text in percent, with one decimal below 10."""
    value = abs(share) * 100
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def change_text(found: Range, word: str) -> str:
    """Returns a text such as `12 % (9 to 14) less`."""
    near, far = sorted((abs(found.low - 1), abs(found.high - 1)))
    return f"{percent(found.middle - 1)} % ({percent(near)} to {percent(far)}) {word}"


def sentence(compared: Comparison, subject_text: str, nothing: str) -> str:
    """Returns one sentence on a figure. nothing: the words for a difference that cannot be told."""
    less, more, same = compared.sides()
    parts = []
    for side, word in ((less, "less than"), (more, "more than")):
        parts += [f"{change_text(found, word)} {name}" for name, found in side.items()]
    noise = f"the noise of {percent(compared.noise)} %"
    if not parts:
        return f"{subject_text} {nothing} {listed(list(same))} within {noise}."
    text = f"{subject_text} takes {listed(parts)}"
    if same:
        return f"{text}; it cannot be told from {listed(list(same))} within {noise}."
    return f"{text} (noise: {percent(compared.noise)} %)."


def verdict(result: Result, row: str) -> dict[str, str]:
    """Returns {"time", "memory"}, a sentence each; {} if the subject or all others failed."""
    subject = result["subject"]
    time, memory = (Comparison(result, row, figure) for figure in ("time", "peak_rss"))
    if subject not in time.names or len(time.names) < 2:
        return {}
    if time.rounds < ROUNDS_LEAST:
        return {
            "time": f"No verdict on time: {time.rounds} {'round is' if time.rounds == 1 else 'rounds are'} too few to "
            f"tell a difference from the noise, {ROUNDS_LEAST} are enough (--rounds or --time).",
            "memory": "Nor is there one on memory, for the same reason."
        }
    return {"time": sentence(time, f"In time {subject}", "cannot be told from"),
            "memory": sentence(memory, f"In peak memory {subject}", "cannot be told from")}
