"""What `hakmem compare` prints: the fastest and the smallest allocator, a line for each allocator, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hakmem.bench.table import (
    SHORT, STYLES, calls_cells, failures, memory_text, print_notes, print_table, rounds_text, seconds_text)
from hakmem.bench.verdict import ROUNDS_LEAST, Comparison
from hakmem.report.figures import listed
from hakmem.screen import Console, Text

if TYPE_CHECKING:
    from hakmem.records import Entry, Result


def headline(result: Result, row: str, figure: str, word: str, text: Callable[[float], str]) -> str | None:
    """Returns a line with the allocator of the least figure, and those that cannot be told from it."""
    compared = Comparison(result, row, figure)
    leaders = compared.leaders()
    if not leaders:
        return None
    least = f"{leaders[0]} ({text(compared.middles[leaders[0]])})"
    if compared.rounds < ROUNDS_LEAST and len(compared.names) > 1:
        return f"{word}: too few rounds to tell; {least} has the least median"
    if len(leaders) > 1:
        return f"{word}: {listed([least, *leaders[1:]])}, which cannot be told apart"
    return f"{word}: {least}"


def ratio_cell(entry: Entry, figure: str) -> str | Text:
    """Returns the table cell of a ratio and its interval."""
    ratio = entry.get("ratios", {}).get(figure)
    if ratio is None:
        return "-"
    tie = "=" if ratio["verdict"] == "tie" else ""
    return Text(f"{ratio['median']:.2f}{tie} ({ratio['low']:.2f}–{ratio['high']:.2f})", style=STYLES[ratio["verdict"]])


def print_comparison(console: Console, result: Result) -> None:
    """Prints the whole comparison."""
    (row,) = result["rows"]
    subject, entries = result["subject"], result["summary"]["rows"][row]
    for figure, word, text in (("time", "Fastest", seconds_text), ("peak_rss", "Smallest", memory_text)):
        line = headline(result, row, figure, word, text)
        if line:
            console.print(Text(line, style="bold"), soft_wrap=True)
    console.print()
    counted, failed = calls_cells(result).get(row, {}), failures(result)
    columns = (("wall", "time_s", seconds_text), ("CPU", "cpu_s", seconds_text),
               ("peak RSS", "peak_rss_kib", memory_text), ("private", "peak_private_kib", memory_text),
               ("mean RSS", "mean_rss_kib", memory_text), ("faults", "soft_faults", lambda number: f"{number:,.0f}"))
    lines: list[list[str | Text]] = []
    for name in sorted(entries, key=lambda name: entries[name].get("time_s", float("inf"))):
        entry = entries[name]
        if entry["status"] != "ok":
            detail = failed[row, name][1]
            told = f"{SHORT[entry['status']]} ({detail.partition(':')[0]})" if detail else SHORT[entry["status"]]
            lines.append([name, Text(told, style="bold red")])
            continue
        figures = [text(entry[key]) if key in entry else "-" for _, key, text in columns]
        lines.append([name, *figures, counted[name][1] if name in counted else "-", ratio_cell(entry, "time"),
                      ratio_cell(entry, "peak_rss")])
    head = ["", *(title for title, _, _ in columns), "memory calls", f"time of {subject}", f"peak RSS of {subject}"]
    print_table(console, f"{result['rows'][row]['command']}: medians of {rounds_text(result)}; at the right "
                f"{subject}'s figure by this one's", head, lines)
    print_notes(console, result)
    sentences = result.get("verdict", {}).values()
    if sentences:
        console.print()
        console.print(Text(f"Verdict: {' '.join(sentences)}", style="bold"), soft_wrap=True)
