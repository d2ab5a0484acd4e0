"""Prints a replay's figures as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hakmem.bench.comparison import ratio_cell
from hakmem.bench.table import SHORT, memory_text, print_table, seconds_text
from hakmem.phrases import plural
from hakmem.screen import Text, make_console

if TYPE_CHECKING:
    from hakmem.records import Result


def print_replay(result: Result) -> None:
    """Prints the table, fastest allocator first."""
    console = make_console()
    entries, subject = result["entries"], result["subject"]
    failed: dict[str, str] = {}
    for sample in result["samples"]:
        if sample["status"] != "ok":
            failed.setdefault(sample["allocator"], sample["detail"] or "")
    lines: list[list[str | Text]] = []
    for name in sorted(entries, key=lambda name: entries[name].get("time_s", float("inf"))):
        entry = entries[name]
        if entry["status"] != "ok":
            lines.append([name, Text(SHORT[entry["status"]], style="bold red")])
            continue
        lines.append([name, seconds_text(entry["time_s"]), f"{entry['ns_per_op']:.1f} ns", seconds_text(entry["cpu_s"]),
                      memory_text(entry["peak_rss_kib"]), f"{entry['soft_faults']:,.0f}", ratio_cell(entry, "time"),
                      ratio_cell(entry, "peak_rss")])
    print_table(console, f"{result['file']}: {result['calls']:,} calls in {result['threads']:,} threads, medians of "
                f"{plural(result['rounds'], 'round')}; at the right {subject}'s by this one's",
                ["", "time", "a call", "CPU", "peak RSS", "faults", f"time of {subject}", f"peak RSS of {subject}"],
                lines)
    for name, detail in failed.items():
        console.print(Text(f"{name}: {SHORT[entries[name]['status']]}: {detail}"), soft_wrap=True)
