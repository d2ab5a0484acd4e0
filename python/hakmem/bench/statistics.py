"""Computes figures from samples: medians, ratios by round, their intervals, and means over rows.

A ratio is the subject's figure divided by another allocator's in the same round. Below 1 the subject takes less. Its
interval is the middle 95 % of the medians of resampled rounds. A row whose interval contains 1 is a tie. So is a row
with one round, which says nothing about the spread."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hakmem.records import Entry, Ratio, Sample

# {name of the ratio: key of the sample}
FIGURES = {"time": "time_s", "cpu": "cpu_s", "peak_rss": "peak_rss_kib", "private": "peak_private_kib",
           "mean_rss": "mean_rss_kib",
           "end_rss": "end_rss_kib", "faults": "soft_faults"}
MEDIANS = ("time_s", "cpu_s", "peak_rss_kib", "peak_private_kib", "mean_rss_kib", "end_rss_kib", "idle_rss_kib",
           "idle_private_kib", "soft_faults", "ns_per_op", "thread_held_bytes", "thread_later_bytes", "huge_percent",
           "fill_ms", "full_kib", "live_kib", "freed_kib", "held_kib")
OVERALL = {"time": ("time", None), "time_programs": ("time", "program"), "cpu": ("cpu", None),
           "peak_rss": ("peak_rss", None), "private": ("private", None), "mean_rss": ("mean_rss", None)}
RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20251109


def middle_of(values: Iterable[float]) -> float:
    """Returns the median as a float."""
    return float(median(values))


def binomial_tail(draws: int, chance: float, least: int) -> float:
    """Returns the probability of at least `least` hits in `draws` draws that each hit with `chance`."""
    return sum(math.comb(draws, hits) * chance**hits * (1 - chance)**(draws - hits) for hits in range(least, draws + 1))


def pairs_of_middles(count: int) -> dict[tuple[int, int], float]:
    """Returns {(i, j): probability} that the middle two of `count` (even) draws are values i and j."""
    half = count // 2

    def both(i: int, j: int) -> float:
        """The probability that the lower middle draw is at most value i and the upper one at most value j, i <= j."""
        low, high = (i + 1) / count, (j + 1) / count
        if i == j:
            return binomial_tail(count, high, half + 1)
        total = 0.0
        for least in range(half, count + 1):  # draws up to the i-th
            share = math.comb(count, least) * low**least
            rest = count - least
            for between in range(max(0, half + 1 - least), rest + 1):  # draws above it, up to the j-th
                total += share * math.comb(rest, between) * (high - low)**between * (1 - high)**(rest - between)
        return total

    known = {(i, j): both(i, j) for i in range(count) for j in range(i, count)}

    def at(i: int, j: int) -> float:
        return known[min(i, j), j] if i >= 0 and j >= 0 else 0.0

    return {(i, j): max(0.0, at(i, j) - at(i - 1, j) - at(i, j - 1) + at(i - 1, j - 1)) for i, j in known}


@lru_cache(maxsize=None)
def chances(count: int) -> tuple[tuple[int, int, float], ...]:
    """Returns ((i, j, probability), ...): a resample of `count` sorted values has its median half way between values i
    and j.

    These are exact: the limit that drawing ever more resamples approaches."""
    if count % 2:
        half = (count + 1) // 2
        tails = [binomial_tail(count, (place + 1) / count, half) for place in range(count)]
        return tuple((place, place, tail - before) for place, (tail, before) in enumerate(zip(tails, [0.0, *tails])))
    return tuple((i, j, chance) for (i, j), chance in pairs_of_middles(count).items())


def medians_of_resamples(values: Iterable[float]) -> tuple[list[float], list[float]]:
    """Returns (medians, probabilities) over all resamples of the values."""
    values = sorted(values)
    found = sorted(((values[i] + values[j]) / 2, chance) for i, j, chance in chances(len(values)))
    return [value for value, _ in found], [chance for _, chance in found]


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Returns (low, high) of the median of the values: the percentile bootstrap, computed without random draws."""
    values = [float(value) for value in values]
    if min(values) == max(values):
        return values[0], values[0]
    medians, weights = medians_of_resamples(values)
    tail, sums = (1 - CONFIDENCE) / 2, list(accumulate(weights))
    last = len(medians) - 1
    return medians[min(bisect_left(sums, tail), last)], medians[min(bisect_left(sums, 1 - tail), last)]


def verdict(low: float, high: float, rounds: int) -> str:
    """Returns tie, lower or higher, depending on where an interval lies."""
    if rounds < 2 or low <= 1.0 <= high:
        return "tie"
    return "lower" if high < 1.0 else "higher"


def describe_ratios(values: Sequence[float]) -> Ratio:
    """Returns the entry of a summary for a row's ratios."""
    low, high = interval(values)
    return {"median": middle_of(values), "low": low, "high": high, "rounds": len(values),
            "verdict": verdict(low, high, len(values))}


def half_width(ratio: Ratio) -> float:
    """Returns half the interval divided by the median; infinite for a single round."""
    if ratio["rounds"] < 2:
        return float("inf")
    half: float = (ratio["high"] - ratio["low"]) / 2 / ratio["median"]
    return half


def group_samples(samples: Iterable[Sample]) -> defaultdict[str, defaultdict[str, dict[int, Sample]]]:
    """Returns {row: {allocator: {round: sample}}} of the runs that went well."""
    grouped: defaultdict[str, defaultdict[str, dict[int, Sample]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        if sample["status"] == "ok":
            grouped[sample["row"]][sample["allocator"]][sample["round"]] = sample
    return grouped


def ratios_by_round(subject: dict[int, Sample], other: dict[int, Sample], key: str) -> list[float]:
    """Returns the subject's figure divided by the other's, for each round that has both. A figure of 0 has no ratio."""
    pairs = ((subject[number].get(key), other[number].get(key)) for number in sorted(subject) if number in other)
    return [own / its for own, its in pairs if own and its]


def middle(samples: Iterable[Sample], key: str) -> float | None:
    """Returns the median of a figure; None if no sample has it."""
    values = [sample[key] for sample in samples if sample.get(key) is not None]
    return middle_of(values) if values else None


def status_of(samples: Iterable[Sample]) -> str:
    """Returns an allocator's status in a row: that of the first failed run, or ok."""
    return next((sample["status"] for sample in samples if sample["status"] != "ok"), "ok")


def summarize_row(runs: dict[str, dict[int, Sample]], statuses: dict[str, str], allocators: Iterable[str],
                  subject: str) -> dict[str, Entry]:
    """Returns {allocator: entry} of one row. An allocator that did not complete the row has a status and no figures."""
    entries: dict[str, Entry] = {}
    complete = statuses.get(subject) == "ok"
    for name in allocators:
        if name not in statuses:
            continue
        entry: Entry = {"status": statuses[name]}
        if statuses[name] == "ok":
            for key in MEDIANS:
                value = middle(runs[name].values(), key)
                if value is not None:
                    entry[key] = value
            if complete and name != subject:
                ratios = {figure: ratios_by_round(runs[subject], runs[name], key) for figure, key in FIGURES.items()}
                entry["ratios"] = {figure: describe_ratios(values) for figure, values in ratios.items() if values}
        entries[name] = entry
    return entries


def best_peer(entries: dict[str, Entry], peers: Iterable[str], figure: str) -> str | None:
    """Returns the peer with the least median of a figure, of those that completed the row, or None."""
    key = FIGURES[figure]
    standing = [name for name in peers if key in entries.get(name, {}) and figure in entries[name].get("ratios", {})]
    return min(standing, key=lambda name: entries[name][key]) if standing else None


def describe_best(entries: dict[str, Entry], peers: Sequence[str]) -> dict[str, Ratio]:
    """Returns the best peer of a row in each figure, with the subject's ratio to it."""
    best: dict[str, Ratio] = {}
    for figure in ("time", "peak_rss", "mean_rss"):
        name = best_peer(entries, peers, figure)
        if name is not None:
            ratio = entries[name]["ratios"][figure]
            best[figure] = {"allocator": name, "ratio": ratio["median"], "low": ratio["low"], "high": ratio["high"]}
    return best


def geometric_mean(ratio_lists: Sequence[Sequence[float]]) -> Ratio:
    """Returns the geometric mean, over rows, of the median ratio of each row. Its interval comes from resampling
    each row's rounds. ratio_lists: one list of ratios for each row."""
    draw, count = random.Random(SEED), len(ratio_lists)
    middle = math.exp(sum(math.log(middle_of(values)) for values in ratio_lists) / count)
    tail = (1 - CONFIDENCE) / 2
    if count == 1:
        low, high = interval(ratio_lists[0])
        return {"median": middle, "low": low, "high": high, "rows": count}
    drawn: list[list[float]] = []
    for values in ratio_lists:
        medians, weights = medians_of_resamples(values)
        drawn.append(draw.choices([math.log(value) for value in medians], weights, k=RESAMPLES))
    means = sorted(math.exp(sum(logs) / count) for logs in zip(*drawn))
    return {"median": middle, "low": means[round(tail * (RESAMPLES - 1))],
            "high": means[round((1 - tail) * (RESAMPLES - 1))], "rows": count}


def summarize(samples: Sequence[Sample], rows: dict[str, Any], allocators: Sequence[str], subject: str,
              copy: str | None) -> dict[str, Any]:
    """Returns the summary of a result file. rows: {name: {"group", ...}}. copy: the name of the subject's copy."""
    runs = group_samples(samples)
    all_samples: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        all_samples[sample["row"], sample["allocator"]].append(sample)
    peers = [name for name in allocators if name not in (subject, copy)]
    summary: dict[str, dict[str, Any]] = {"rows": {}, "overall": {}, "best": {}}
    for row in rows:
        statuses = {name: status_of(all_samples[row, name]) for name in allocators if all_samples[row, name]}
        if statuses:
            summary["rows"][row] = summarize_row(runs[row], statuses, allocators, subject)
            summary["best"][row] = describe_best(summary["rows"][row], peers)
    for name in allocators:
        if name == subject:
            continue
        summary["overall"][name] = {}
        for mean, (figure, group) in OVERALL.items():
            lists = [ratios_by_round(runs[row][subject], runs[row][name], FIGURES[figure])
                     for row, entries in summary["rows"].items()
                     if figure in entries.get(name, {}).get("ratios", {})
                     and (group is None or rows[row]["group"] == group)]
            if lists:
                summary["overall"][name][mean] = geometric_mean(lists)
    return summary
