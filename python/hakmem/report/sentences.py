"""The sentences of the page: what ran, the outcome, how it was measured."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

from hakmem.phrases import capital, plural
from hakmem.report import figures

if TYPE_CHECKING:
    from hakmem.records import Ratio, Result

FACTS = {"cpu": "Processor", "cpus": "Processors", "memory": "Memory", "kernel": "Kernel", "libc": "C library",
         "huge_pages": "Huge pages", "load_before": "Load before", "load_after": "Load after"}


def headline(result: Result) -> str:
    """Returns the outcome against the closest peer, or what was compared if there is no overall figure."""
    subject = result["subject"]
    closest = closest_peer(result, "time")
    if closest is None:
        others = figures.peers(result)
        return f"{subject} beside {figures.listed(others)}" if others else f"{subject}, measured alone"
    name, figure = closest
    ratio = figures.ratio_text(figure["median"])
    if figures.verdict(figure) == "tie":
        return f"{subject} ties with {name}, the fastest peer: {ratio} of its time"
    if figures.verdict(figure) == "lower":
        return f"{subject} is the fastest: {ratio} of the time of {name}, the next"
    return f"{subject} takes {ratio} of the time of {name}, the fastest"


def closest_peer(result: Result, measure: str) -> tuple[str, Ratio] | None:
    """Returns (name, figure) of the peer with the highest ratio, which is the one that takes least."""
    found = [(name, figure) for name in figures.peers(result) if (figure := figures.overall(result, name, measure))]
    return max(found, key=lambda pair: pair[1]["median"]) if found else None


def lead(result: Result) -> str:
    """Returns the first paragraph."""
    groups: dict[str, int] = {}
    for row in result["rows"].values():
        groups[row["group"]] = groups.get(row["group"], 0) + 1
    rows = figures.listed(plural(count, f"{name} row") for name, count in groups.items())
    allocators = plural(len(figures.peers(result)) + 1, "allocator")
    subject = result["subject"]
    return (f"{rows}, {allocators}, {rounds(result)}, in turn on one machine. Every ratio is {subject}'s figure "
            f"divided by the other allocator's: below 1, {subject} takes less.")


def rounds(result: Result) -> str:
    """Returns how many rounds the rows had."""
    found: dict[str, set[int]] = {}
    for sample in result["samples"]:
        found.setdefault(sample["row"], set()).add(sample["round"])
    counts = sorted(len(numbers) for numbers in found.values()) or [0]
    return plural(counts[0], "round") if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]} rounds"


def date(result: Result) -> str:
    """Returns the date, with the time in minutes if the result has one."""
    text: str = result["date"]
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    if "T" not in text:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".rstrip()


def machine_text(value: object) -> str:
    """Returns a value of the machine. Amounts in the form of /proc/meminfo get a readable unit."""
    text = figures.value_text(value)
    amount = re.fullmatch(r"(\d+) kB", text)
    return figures.with_unit(int(amount[1]), "KiB") if amount else text


def facts(result: Result) -> list[tuple[str, str]]:
    """Returns (name, value) of the facts about the run."""
    machine = result["machine"]
    found = [("Date", date(result)), ("Commit", (result["commit"] or "not known")[:12])]
    found += [(FACTS[key], machine_text(machine[key])) for key in ("cpu", "cpus", "memory", "kernel", "libc")
              if key in machine]
    return [*found, ("Rounds", rounds(result))]


def listing(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (name, value) of the machine's or the options' values, as texts."""
    return [(FACTS.get(key, capital(key.replace("_", " "))), figures.value_text(value))
            for key, value in values.items()]


def tiles(result: Result) -> list[dict[str, str]]:
    """Returns the few figures to remember: {value, text, small, kind}."""
    subject, found = result["subject"], []
    for measure, text in (("time", "of the time of {}, the fastest peer"),
                          ("time_programs", "of the time of {}, the fastest peer on programs"),
                          ("peak_rss", "of the peak memory of {}, the thriftiest peer"),
                          ("mean_rss", "of the time-averaged memory of {}, the thriftiest peer")):
        closest = closest_peer(result, measure)
        if closest:
            name, figure = closest
            found.append({"value": figures.ratio_text(figure["median"]), "text": text.format(name),
                          "small": f"{figures.ratio_text(figure['low'])} to {figures.ratio_text(figure['high'])}",
                          "kind": figures.verdict(figure)})
    verdicts = [ratio["verdict"] for row, entry in result["summary"]["best"].items() if (figure := entry.get("time"))
                and (ratio := figures.compared(result, row, figure["allocator"], "time"))]
    if verdicts:
        found.append({"value": f"{verdicts.count('lower')} of {len(verdicts)}",
                      "text": f"rows on which {subject} takes less time than every peer",
                      "small": f"{plural(verdicts.count('tie'), 'tie')}, "
                               f"{verdicts.count('higher')} behind the row's best",
                      "kind": "count"})
    return found


def row_section(result: Result, measure: str) -> str:
    """Returns the text above the charts of a measure."""
    subject = result["subject"]
    averaged = " Averaged over the run, so memory held longer weighs more." if measure == "mean_rss" else ""
    copied = figures.again(result) in result["allocators"]
    noise = f" A row's grey bar is what two copies of {subject} differ by." if copied else ""
    return (f"{subject}'s figure divided by each peer's.{averaged} The large points are the best peer of each row, "
            f"with its 95 % interval; the legend shows other allocators. Grey points are ties.{noise}")


def method(result: Result) -> list[str]:
    """Returns how ratios are made, briefly: only what holds for every result of this format."""
    subject, copy = result["subject"], figures.again(result)
    found = [
        "The allocators run in turn, round by round, each in a process of its own. A ratio is taken between two runs "
        "of the same round, so that what slows a whole round slows both sides of it.",
        "The figure of a row is the median of its rounds' ratios, with a 95 % interval by bootstrap over the rounds. "
        "Where the interval spans 1, the row is a tie, and so is a row of a single round. Overall figures are "
        "geometric means over the rows that both allocators completed.",
        "Time is that of a driver's timed part, or seconds for a million operations where a driver runs for a time; of "
        "a program it is the whole run. CPU time is of the same part. Peak memory is the largest resident set, "
        "time-averaged memory its mean over the run. Private dirty memory is the part of the peak that no other "
        "process "
        "shares and no file backs, as the kernel tells it in the first round."
    ]
    if copy in result["allocators"]:
        found.append(f"{copy} is a copy of {subject}'s library: what the two differ by is the noise of this run.")
    return found
