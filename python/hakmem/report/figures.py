"""Selects from a checked result what the page shows, and puts it in words: units, names, tables, sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from hakmem.phrases import capital, plural
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.records import Entry, Ratio, Result

# {ratio in the result: (its name, the key of its median, the median's unit)}
MEASURES = {
    "time": ("time", "time_s", "s"),
    "cpu": ("CPU time", "cpu_s", "s"),
    "peak_rss": ("peak memory", "peak_rss_kib", "KiB"),
    "private": ("private dirty memory", "peak_private_kib", "KiB"),
    "mean_rss": ("time-averaged memory", "mean_rss_kib", "KiB"),
    "faults": ("page faults", "soft_faults", ""),
}

OVERALL = {
    "time": "Time, all rows",
    "time_programs": "Time, programs alone",
    "cpu": "CPU time",
    "peak_rss": "Peak memory",
    "private": "Private dirty memory",
    "mean_rss": "Time-averaged memory",
}

# The order of the peers: this list, then the result's. So peers keep their color and shape from page to page.
KNOWN = ("mimalloc3", "mimalloc2", "snmalloc", "rpmalloc", "jemalloc", "tcmalloc", "gperftools", "tbb", "hardened",
         "glibc")

VERDICTS = {"lower": "less", "higher": "more", "tie": "tie"}


@dataclass
class Cell:
    """One cell of a table: its text, the value to sort by, and a hint with more."""
    text: str
    sort: float | str | None = None
    small: str = ""
    hint: str = ""
    kind: str = ""


@dataclass
class Table:
    """A table whose first column names its rows."""
    name: str
    caption: str
    header: list[str]
    lines: list[list[Cell]] = field(default_factory=list)


def again(result: Result) -> str:
    """Returns the name of the subject's copy, whose ratios show the noise."""
    return f"{result['subject']}-again"


def peers(result: Result) -> list[str]:
    """Returns the allocators with which the subject is compared, without its own copy."""
    names = [name for name in result["allocators"] if name not in (result["subject"], again(result))]
    return sorted(names, key=lambda name: KNOWN.index(name) if name in KNOWN else len(KNOWN))


def rows_of(result: Result, group: str | None = None) -> list[str]:
    """Returns the names of the rows, or of the rows of a group."""
    return [name for name, row in result["rows"].items() if group in (None, row["group"])]


def entry(result: Result, row: str, allocator: str) -> Entry:
    """Returns the summary's entry of a row and allocator; {} if there is none."""
    return result["summary"]["rows"].get(row, {}).get(allocator) or {}


def compared(result: Result, row: str, allocator: str, measure: str) -> Ratio | None:
    """Returns the ratio with its interval; None if one of the two did not finish or it was not measured."""
    ratio: Ratio | None = entry(result, row, allocator).get("ratios", {}).get(measure)
    return ratio


def overall(result: Result, allocator: str, measure: str) -> Ratio | None:
    """Returns the mean ratio of an allocator, or None."""
    ratio: Ratio | None = (result["summary"]["overall"].get(allocator) or {}).get(measure)
    return ratio


def measured(result: Result, measure: str) -> bool:
    """Returns whether any allocator has this ratio in any row."""
    return any(compared(result, row, name, measure) for row in result["rows"] for name in result["allocators"])


# ---- Figures in words ----

def ratio_text(value: float) -> str:
    """Returns a ratio as a text."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def interval_text(figure: Ratio) -> str:
    """Returns a ratio with its interval as a text."""
    return f"{ratio_text(figure['median'])} ({ratio_text(figure['low'])} to {ratio_text(figure['high'])})"


def number_text(value: float) -> str:
    """Returns a number with three significant digits, separated thousands and no exponent."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}"


def with_unit(value: float, unit: str) -> str:
    """Returns a value with its unit as a text."""
    if unit == "s":
        scale, unit = (1, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
        value *= scale
        return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    if unit == "KiB":
        return bytes_column(value * 1024)
    return number_text(value)


def listed(words: Iterable[str]) -> str:
    """Joins words with commas and "and"."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def value_text(value: object) -> str:
    """Returns a value of the machine or the options for a reader."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(value_text(part) for part in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {value_text(part)}" for key, part in value.items()) or "none"
    return str(value)


# ---- What did not finish ----

def tidy(detail: str | None, length: int = 200) -> str:
    """Returns the reason that a run left, on one line and not too long."""
    text = " ".join((detail or "").split())
    return text if len(text) <= length else text[:length] + "…"


def failures(result: Result) -> dict[tuple[str, str], str]:
    """Returns {(row, allocator): a sentence} for runs that did not finish."""
    runs: dict[tuple[str, str], list[str]] = {}
    details: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for sample in result["samples"]:
        key = (sample["row"], sample["allocator"])
        runs.setdefault(key, []).append(sample["status"])
        if sample["status"] != "ok":
            details.setdefault(key, []).append((sample["status"], tidy(sample.get("detail"))))
    told = {}
    for row, entries in result["summary"]["rows"].items():
        for allocator, figures in entries.items():
            if figures["status"] != "ok":
                details.setdefault((row, allocator), [(figures["status"], "")])
    for key, found in details.items():
        kinds = dict.fromkeys(f"{status} ({detail})" if detail else status for status, detail in found)
        of = runs.get(key, [])
        told[key] = f"{listed(kinds)} in {len(found)} of {plural(len(of), 'round')}" if of else listed(kinds)
    return told


# ---- Tables ----

def row_table(result: Result, measure: str) -> Table:
    """Returns the table of all rows: the subject's median, and each other's ratio, verdict and median."""
    name, key, unit = MEASURES[measure]
    subject = result["subject"]
    others = [*peers(result), *([again(result)] if again(result) in result["allocators"] else [])]
    table = Table(f"all-{measure}", f"{capital(name)}: {subject}'s divided by each allocator's, row by row",
                  ["Row", "Group", "Threads", subject, *others])
    told = failures(result)
    for row, about in result["rows"].items():
        line = [Cell(row, row, about.get("about") or "", about["command"]), Cell(about["group"], about["group"]),
                Cell(str(about.get("threads") or ""), about.get("threads") or 0)]
        for allocator in (subject, *others):
            line.append(figure_cell(result, row, allocator, measure, key, unit, told.get((row, allocator), "")))
        table.lines.append(line)
    return table


def figure_cell(result: Result, row: str, allocator: str, measure: str, key: str, unit: str, told: str) -> Cell:
    """Returns the cell of a row and allocator."""
    figures = entry(result, row, allocator)
    if not figures:
        return Cell("not run", kind="none")
    if figures["status"] != "ok":
        return Cell(figures["status"], small=told.removeprefix(figures["status"]).strip(), kind="bad", hint=told)
    value = figures.get(key)
    own = with_unit(value, unit) if value is not None else "not measured"
    ratio = compared(result, row, allocator, measure)
    if ratio is None:
        return Cell(own, value, kind="own" if value is not None else "none", hint=told)
    hint = f"95 % interval {ratio['low']:.3f} to {ratio['high']:.3f}"
    if "rounds" in ratio:
        hint += f", {plural(ratio['rounds'], 'round')}"
    return Cell(ratio_text(ratio["median"]), ratio["median"], f"{VERDICTS[ratio['verdict']]} · {own}",
                "; ".join(part for part in (hint, told) if part), ratio["verdict"])


def overall_table(result: Result) -> Table:
    """Returns a table of geometric means over the rows that both completed, fastest allocator first."""
    shown = [key for key in OVERALL if any(overall(result, name, key) for name in result["allocators"])]
    subject = result["subject"]
    table = Table("overall", f"{subject}'s figures divided by each allocator's: geometric means with 95 % intervals",
                  ["Allocator", *(OVERALL[key] for key in shown), "Rows"])
    names = [name for name in (*peers(result), again(result)) if result["summary"]["overall"].get(name)]
    for name in sorted(names, key=lambda name: -((overall(result, name, "time") or {"median": 0})["median"])):
        line = [Cell(name, name, "a second copy: the noise" if name == again(result) else "")]
        for key in shown:
            figure = overall(result, name, key)
            line.append(Cell("none", kind="none") if figure is None else Cell(
                ratio_text(figure["median"]), figure["median"],
                f"{ratio_text(figure['low'])} to {ratio_text(figure['high'])}", kind=verdict(figure)))
        count = (overall(result, name, "time") or {}).get("rows")
        line.append(Cell(str(count), count) if count is not None else Cell("", kind="none"))
        table.lines.append(line)
    return table


def verdict(figure: Ratio) -> str:
    """Returns the verdict of an interval. One without width is of a single round, which shows no spread."""
    if figure["low"] == figure["high"]:
        return "tie"
    return "lower" if figure["high"] < 1 else "higher" if figure["low"] > 1 else "tie"


def plain_table(result: Result, name: str, caption: str, values: dict[tuple[str, str], float], unit: str,
                hints: dict[tuple[str, str], str] | None = None) -> Table | None:
    """Returns a table of {(row, allocator): value}: rows down, allocators across, each row's least marked."""
    allocators = [a for a in (result["subject"], *peers(result)) if any(key[1] == a for key in values)]
    table = Table(name, caption, ["Row", *allocators])
    for row in result["rows"]:
        found = {a: values[row, a] for a in allocators if (row, a) in values}
        if not found:
            continue
        least = min(found.values())
        table.lines.append([Cell(row, row)] + [
            Cell(with_unit(found[a], unit), found[a], hint=(hints or {}).get((row, a), ""),
                 kind="least" if found[a] == least else "") if a in found else Cell("none", kind="none")
            for a in allocators])
    return table if table.lines else None


def idle_table(result: Result) -> Table | None:
    """Returns the table of memory that idle programs hold."""
    values: dict[tuple[str, str], list[float]] = {}
    for sample in result["samples"]:
        if sample["status"] == "ok" and sample.get("idle_rss_kib") is not None:
            values.setdefault((sample["row"], sample["allocator"]), []).append(sample["idle_rss_kib"])
    return plain_table(result, "idle", "Memory still held when everything is freed and the program idles",
                       {key: median(found) for key, found in values.items()}, "KiB")


def calls_table(result: Result) -> Table | None:
    """Returns the table of system calls."""
    found = [call for call in result.get("calls") or [] if call["memory_total"] is not None]
    hints = {(call["row"], call["allocator"]): ", ".join(
        f"{name} {count:,.0f}" for name, count in call["memory"].items() if count) for call in found}
    return plain_table(result, "calls", "System calls for memory, one run of each row",
                       {(call["row"], call["allocator"]): call["memory_total"] for call in found}, "", hints)


def instructions_table(result: Result) -> Table | None:
    """Returns the table of instructions."""
    values = {(count["row"], count["allocator"]): count["per_op"] for count in result.get("instructions") or []
              if count.get("per_op") is not None}
    return plain_table(result, "instructions", "Instructions an operation, counted by callgrind", values, "")
