"""The command `hakmem bench curve`: time against memory held, for each delay after which allocators give memory
back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import rows as bench_rows
from hakmem.bench.command import Grid, grid_options, rows_of
from hakmem.bench.table import memory_text, print_notes, print_table, seconds_text
from hakmem.parameters import Range
from hakmem.screen import Console, Text

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator, Known
    from hakmem.records import Result

ROUNDS = 7
DELAYS = (0, 100, 500, 2000, 10000)
ROWS = ("^big-", "^vector-", "^burst-idle", "^large-", "^phases-large")
# Smaller differences are noise. A point beats another if one figure is better by more than this and the other no worse.
NOISE = 0.02

# Variables that set after how many milliseconds an allocator gives free memory back. Other allocators are one point.
SETTINGS = {
    "hakmem": lambda delay: {"HAKMEM_PURGE_DELAY": str(delay)},
    "mimalloc2": lambda delay: {"MIMALLOC_PURGE_DELAY": str(delay)},
    "mimalloc3": lambda delay: {"MIMALLOC_PURGE_DELAY": str(delay)},
    "jemalloc": lambda delay: {"MALLOC_CONF": f"dirty_decay_ms:{delay},muzzy_decay_ms:{delay}"},
}


def point_name(name: str, delay: int) -> str:
    """Returns the name of an allocator with a delay."""
    return f"{name}@{delay}"


def with_delays(allocators: dict[str, Allocator], delays: Sequence[int]) -> dict[str, Allocator]:
    """Returns {name: Allocator}: each allocator as it is, and once more for each delay if it has such a setting."""
    found = {}
    for name, allocator in allocators.items():
        found[name] = allocator
        for delay in delays if name in SETTINGS else ():
            point = point_name(name, delay)
            found[point] = replace(allocator, name=point, setting={**allocator.setting, **SETTINGS[name](delay)})
    return found


@dataclass(frozen=True)
class Point:
    """The time and memory that one allocator with one delay took in a row."""

    name: str
    time_s: float
    mean_rss_kib: float

    @property
    def allocator(self) -> str:
        """The allocator's name without its delay."""
        return self.name.partition("@")[0]

    def beats(self, other: Point) -> bool:
        """Returns whether this point takes less time or memory than the other, and no more of either."""
        figures = [(self.time_s, other.time_s), (self.mean_rss_kib, other.mean_rss_kib)]
        return (all(own <= their for own, their in figures)
                and any(own < their * (1 - NOISE) for own, their in figures))


def points_of(result: Result, row: str) -> list[Point]:
    """Returns the row's points, least memory first."""
    copy = chosen_allocators.again(result["subject"])
    entries = result["summary"]["rows"][row]
    points = [Point(name, entry["time_s"], entry["mean_rss_kib"]) for name, entry in entries.items()
              if name != copy and "time_s" in entry and "mean_rss_kib" in entry]
    return sorted(points, key=lambda point: (point.mean_rss_kib, point.time_s))


def beaten_by(points: list[Point], subject: str) -> dict[Point, list[Point]]:
    """Returns {point of the subject: points of other allocators that beat it}."""
    return {point: [other for other in points if other.allocator != subject and other.beats(point)]
            for point in points if point.allocator == subject}


def print_curves(console: Console, result: Result) -> None:
    """Prints a table of points for each row, and which points of the subject are beaten."""
    subject = result["subject"]
    for row in result["rows"]:
        points = points_of(result, row)
        entries = result["summary"]["rows"][row]
        beaten = beaten_by(points, subject)
        lines: list[list[str | Text]] = []
        for point in points:
            entry = entries[point.name]
            on_front = not any(other.beats(point) for other in points)
            style = "bold green" if point.allocator == subject else ""
            lines.append([Text(point.name, style=style), memory_text(point.mean_rss_kib), seconds_text(point.time_s),
                          seconds_text(entry["cpu_s"]), memory_text(entry["peak_rss_kib"]),
                          f"{entry['soft_faults']:,.0f}",
                          "yes" if on_front else ""])
        print_table(console, f"{row}: the least memory first", ["", "mean RSS", "time", "CPU time", "peak RSS",
                                                                "faults", "not beaten"],
                    lines)
        worse = {point.name: others for point, others in beaten.items() if others}
        if not worse:
            console.print(Text(f"{row}: no other allocator takes less time at the same memory as {subject} with any of "
                               "its delays."),
                          soft_wrap=True)
        for name, others in worse.items():
            console.print(Text(f"{row}: {name} is beaten by {', '.join(other.name for other in others)}"),
                          soft_wrap=True)
        console.print()
    print_notes(console, result)


def split_delays(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Parses --delays (click callback)."""
    if not value:
        return DELAYS
    delays = []
    for word in value.split(","):
        if not word.strip().isdigit() or int(word) > 1_000_000:
            raise click.BadParameter(f"'{word}' is no number of milliseconds from 0 to 1000000")
        delays.append(int(word))
    return tuple(dict.fromkeys(delays))


@click.command("curve", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--delays", callback=split_delays, metavar="MS,MS,...",
              help=f"Delays in milliseconds. Default: {','.join(map(str, DELAYS))}.")
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN",
              help=f"Rows whose name matches. Default: {', '.join(ROWS)}.")
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, metavar="N",
              help="Rounds of each point.")
@click.option("--scale", type=Range(0, min_open=True), default=1.0, metavar="FACTOR",
              help="Multiply the work of the rows that name an amount.")
@grid_options("curve")
def curve(grid: Grid, delays: tuple[int, ...], patterns: tuple[str, ...], scale: float) -> None:
    """Measure time against memory held, over the delays after which memory goes back to the system.

    An allocator that keeps what is freed needs no time to get it again. The tables show for each row what every
    allocator takes in time and memory (RSS averaged over time) with each delay, and which points no other beats in
    both."""
    def choose() -> Known:
        chosen, trouble = grid.choose()
        return with_delays(chosen, delays), trouble

    grid.measure(rows_of(bench_rows.FILE, patterns or ROWS), print_curves, choose, scale=scale,
                 calls=None if grid.no_calls else "late")
