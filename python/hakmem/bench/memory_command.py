"""The command `hakmem bench memory`: what stays resident where a program writes little, or has freed most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench.command import Grid, grid_options, rows_of
from hakmem.bench.table import print_notes, print_table, seconds_text, slices
from hakmem.screen import Console

if TYPE_CHECKING:
    from hakmem.records import Entry, Result

FILE = Path(__file__).with_name("memory.toml")
ROUNDS = 3
LABEL_WIDTH = 24


def mib_text(kib: float) -> str:
    """Returns KiB as a text in MiB."""
    return f"{kib / 1024:,.0f}" if kib >= 10 * 1024 else f"{kib / 1024:.1f}"


def print_figure(console: Console, result: Result, names: Sequence[str], title: str, key: str,
                 text_of: Callable[[float], str]) -> None:
    """Prints a table of one figure: patterns down, allocators across."""
    rows: dict[str, dict[str, Entry]] = result["summary"]["rows"]
    for part in slices(names, console, max(8, *map(len, names)), LABEL_WIDTH):
        print_table(console, title, ["", *part],
                    [[row, *(text_of(found[name][key]) if key in found.get(name, {}) else "-" for name in part)]
                     for row, found in rows.items()])


def print_memory(console: Console, result: Result) -> None:
    """Prints the tables of a result."""
    copy = chosen_allocators.again(result["subject"])
    names = [name for name in result["allocators"] if name != copy]
    print_figure(console, result, names, "MiB of RSS that the pattern added when it was highest", "full_kib", mib_text)
    print_figure(console, result, names, "MiB of it left 1.5 s after the pattern freed what it frees", "held_kib",
                 mib_text)
    print_figure(console, result, names, "Time", "time_s", seconds_text)
    print_notes(console, result)


@click.command("memory", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN", help="Rows whose name matches.")
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, metavar="N",
              help="Rounds of each row.")
@grid_options("memory")
def memory(grid: Grid, patterns: tuple[str, ...]) -> None:
    """Measure what stays resident: sparse blocks, changing sizes, and memory that was freed.

    The tables show what a pattern adds to RSS when that is highest, and what is left of it after 1.5 s without a
    call."""
    grid.measure(rows_of(FILE, patterns), print_memory, warm=grid.warm or 0)
