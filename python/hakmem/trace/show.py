"""Prints what a trace holds, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hakmem.bench.table import print_table
from hakmem.screen import Console, Table, Text, make_console
from hakmem.units import bytes_text

if TYPE_CHECKING:
    from hakmem.records import Record

BAR = 30


def print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Prints names with their values."""
    table = Table(show_header=False)
    for name, value in pairs:
        table.add_row(Text(name, style="bold"), Text(value))
    console.print(table)
    console.print()


def what_is_left_out(found: Record) -> str:
    """Returns in words which calls the trace left out."""
    told = (("failed", "calls that returned NULL"), ("foreign_frees", "frees of blocks from before the recording"),
            ("lost_frees", "blocks freed unseen"), ("in_flight", "calls that the process's end interrupted"))
    return ", ".join(f"{found[key]:,} {text}" for key, text in told if found[key])


def end_text(found: Record) -> str:
    """Returns how the program ended, in words."""
    if "signal" in found:
        return f"ended by {found['signal']}"
    return f"exit status {found['status']}" if "status" in found else "unknown"


def print_info(found: Record) -> None:
    """Prints everything about a trace."""
    console = make_console()
    lives = found["lives"]
    threads = found["threads"]
    pairs = [("file", f"{found['file']}, {bytes_text(found['file_bytes'])}"),
             ("command", found.get("command", "unknown")), ("recorded", found.get("date", "unknown")),
             ("end", f"child process {found['child']}" if "child" in found else end_text(found))]
    if found["truncated"]:
        pairs.append(("truncated", f"recording stopped early: {found['truncated']}"))
    pairs += [
        ("calls", f"{found['calls']:,}, {bytes_text(found['bytes_requested'])} requested"),
        ("threads", f"{len(threads):,}, at most {found['threads_at_once']:,} at once"),
        ("peak in use", f"{bytes_text(found['peak_live_bytes'])}; {found['peak_live_blocks']:,} blocks at most"),
        ("in use at the end", f"{bytes_text(found['live_at_end_bytes'])} in {found['live_at_end_blocks']:,} blocks"),
        ("blocks", f"{lives['freed']:,} freed, {lives['freed_by_other_thread']:,} of them by another thread; "
                   f"{lives['never_freed']:,} not freed")]
    if what_is_left_out(found):
        pairs.append(("not replayed", what_is_left_out(found)))
    print_pairs(console, pairs)
    print_table(console, "Calls", ["", "calls", "of all"],
                [[name, f"{count:,}", f"{100 * count / found['calls']:.1f} %"] for name, count in
                 sorted(found["kinds"].items(), key=lambda pair: -pair[1])])
    print_sizes(console, found["sizes"])
    if lives["calls"]:
        print_table(console, "Lives of the freed blocks, by percentile", ["", *lives["calls"]],
                    [["in calls", *(f"{value:,}" for value in lives["calls"].values())],
                     ["in bytes requested", *(bytes_text(value) for value in lives["bytes"].values())]])
    if len(threads) > 1:
        busiest = sorted(range(len(threads)), key=lambda number: -threads[number]["calls"])[:10]
        print_table(console, "Threads with the most calls", ["thread", "calls", ""],
                    [[str(number), f"{threads[number]['calls']:,}", "ended" if threads[number]["ended"] else ""]
                     for number in busiest])


def print_sizes(console: Console, sizes: list[Record]) -> None:
    """Prints the table of sizes."""
    most = max((size["count"] for size in sizes), default=0)
    table = Table("Sizes that were asked for")
    table.add_column("")
    table.add_column("blocks", justify="right")
    table.add_column("bytes", justify="right")
    table.add_column("")
    for size in sizes:
        if size["count"]:
            bar = Text("█" * max(1, round(BAR * size["count"] / most)), style="cyan")
            table.add_row(f"to {bytes_text(size['up_to'])}", f"{size['count']:,}", bytes_text(size["bytes"]), bar)
    if most:
        console.print(table)
        console.print()
