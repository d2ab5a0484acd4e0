"""The command `hakmem bench entries`: every entry point of an allocator, not only malloc and free."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench.batches import KIB, MIB, parse_size
from hakmem.bench.cells import (
    MIMALLOCS, best_cell, figure_cells, instructions_of, list_of, print_limit, print_means, times_of)
from hakmem.bench.command import Grid, grid_options
from hakmem.bench.deterministic import SmallRow
from hakmem.bench.instructions_command import count_cells
from hakmem.bench.rows import Row
from hakmem.bench.table import print_notes, print_table, slices
from hakmem.screen import Console
from hakmem.units import bytes_exact

if TYPE_CHECKING:
    from hakmem.records import Result

PROGRAM = "bench_entries"
SIZES = (8, 64, KIB, 5000, 20000, 100000, 400000, 2 * MIB, 16 * MIB)
SIZE_LEAST = 8
# {a row of bench/drivers/entries.h: what is measured}. `delete` there is the same sequence as `new`.
ENTRIES = {
    "malloc": "malloc, free",
    "calloc": "calloc, free",
    "malloc_usable_size": "malloc_usable_size",
    "malloc_and_usable_size": "malloc, malloc_usable_size, free",
    "realloc": "realloc to the same size",
    "realloc_3_more": "realloc to 3 bytes less and to 3 bytes more",
    "realloc_half_more": "malloc, realloc to half as much more, free",
    "realloc_to_third": "malloc, realloc to a third, free",
    "realloc_four_times": "malloc, realloc to four times as much, free",
    "reallocarray": "reallocarray, free",
    "aligned_alloc_64": "aligned_alloc to 64, free",
    "posix_memalign_32": "posix_memalign to 32, free",
    "memalign_4096": "memalign to a page, free",
    "free_sized": "malloc, free_sized",
    "sdallocx": "malloc, sdallocx",
    "nallocx": "nallocx",
    "sallocx": "sallocx",
    "hak_usable_size": "hak_usable_size",
    "new": "operator new, operator delete",
    "delete_sized": "operator new, operator delete with the size",
    "new_aligned_64": "operator new to 64, its operator delete",
}
# Those that fill or copy a block, and what their calls fill or copy at most.
COPYING = ("calloc", "realloc_half_more", "realloc_to_third", "realloc_four_times")
COPIED_MOST = 512 * MIB
# {the largest size: calls in a run}; of larger blocks the system may map each.
CALLS = {32 * KIB: 500_000, MIB: 50_000, SIZES[-1]: 2_000}
COUNTED_CALLS = 20_000
ROUNDS = 3
LABEL_WIDTH, RATIO_WIDTH = 10, 18


@dataclass(frozen=True)
class Cell:
    """One entry point at one size, with `live` blocks."""

    entry: str
    size: int
    live: int

    @property
    def name(self) -> str:
        """The name of the cell's row."""
        size = bytes_exact(self.size).replace(" ", "").replace(",", "")
        return f"{self.entry}-{size}{f'-x{self.live}' if self.live > 1 else ''}"

    @property
    def calls(self) -> int:
        """How many calls a run times."""
        calls = next((calls for most, calls in CALLS.items() if self.size <= most), min(CALLS.values()))
        return max(10, min(calls, COPIED_MOST // self.size)) if self.entry in COPYING else calls

    def command(self, calls: int) -> tuple[str, ...]:
        """Returns the command for so many calls."""
        return (PROGRAM, self.entry, str(self.size), str(calls), str(self.live))

    def row(self) -> Row:
        """Returns the cell's row."""
        about = f"{ENTRIES[self.entry]}; {bytes_exact(self.size)}, {self.live:,} live"
        return Row(self.name, "driver", 1, about, self.command(self.calls), "seconds")

    def small_row(self) -> SmallRow:
        """Returns the cell as a row for callgrind."""
        calls = min(self.calls, max(COUNTED_CALLS, 2 * self.live))
        return SmallRow(self.name, self.command(self.live + calls), self.command(self.live))


# {cell: {allocator: figure}}
Found = dict[Cell, dict[str, float]]


def print_found(console: Console, found: Found, result: Result, unit: str) -> None:
    """Prints a table for each entry point, and how the subject stands to the others over all of them."""
    subject = result["subject"]
    names = [name for name in result["allocators"] if name not in (subject, chosen_allocators.again(subject))]
    for entry, about in ENTRIES.items():
        lines = {cell: figures for cell, figures in found.items() if cell.entry == entry and figures}
        for part in slices([subject, *names], console, max(8, *map(len, [subject, *names])),
                           LABEL_WIDTH + RATIO_WIDTH) if lines else ():
            table = []
            for cell, figures in lines.items():
                table.append([bytes_exact(cell.size), *figure_cells(figures, part), best_cell(figures, subject, names)])
            print_table(console, f"{unit}: {about}", ["", *part, "by the best"], table)
    if names:
        print_means(console, found, subject, names)
        print_limit(console, found, subject, names, "the best of all")
    mimallocs = [name for name in (*MIMALLOCS, "snmalloc") if name in names]
    if mimallocs:
        print_limit(console, found, subject, mimallocs, f"the best of {', '.join(mimallocs)}")


def print_times(cells: Sequence[Cell], console: Console, result: Result) -> None:
    """Prints the tables of measured times."""
    print_found(console, times_of(result, cells), result, "Nanoseconds a call")
    print_notes(console, result)


def chosen_entries(patterns: Sequence[str]) -> list[str]:
    """Returns the entry points whose name any of the patterns finds; all without a pattern."""
    try:
        found = [name for name in ENTRIES if not patterns or any(re.search(pattern, name) for pattern in patterns)]
    except re.error as error:
        raise click.UsageError(f"--rows: {error}") from error
    if not found:
        raise click.UsageError(f"no entry point matches {' or '.join(patterns)}; there are {', '.join(ENTRIES)}")
    return found


def entry_size(text: str) -> int:
    """Returns the bytes of a text; raises ValueError if entries.c does not take them."""
    size = parse_size(text)
    if size < SIZE_LEAST:
        raise ValueError(f"'{text}' is less than {SIZE_LEAST} bytes")
    return size


@click.command("entries", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN", help="Entry points whose name matches.")
@click.option("--sizes", callback=list_of(entry_size), metavar="A,B,...",
              help="Sizes of blocks, such as 64 or 4K. Default: nine sizes from 8 B to 16 MiB.")
@click.option("--live", type=click.IntRange(1, 100_000), default=1, show_default=True, metavar="N",
              help="Calls before the first is undone. With 1, a thread's cache serves each.")
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, metavar="N",
              help="Rounds of each row.")
@click.option("--instructions", is_flag=True,
              help="Count the instructions of each call under callgrind, in place of time.")
@grid_options("entries")
def entries(grid: Grid, patterns: tuple[str, ...], sizes: tuple[int, ...] | None, live: int,
            instructions: bool) -> None:
    """Measure every entry point: calloc, realloc, aligned allocation, lookups of sizes, C++'s operators.

    The tables show nanoseconds a call at sizes from 8 B to 16 MiB. A call that takes a block includes the one that
    frees it."""
    cells = [Cell(entry, size, live) for entry in chosen_entries(patterns) for size in sizes or SIZES]
    if instructions:
        count_cells(cells, grid, lambda console, counted: print_found(
            console, instructions_of(counted, cells), counted, "Instructions a call"))
    else:
        grid.measure([cell.row() for cell in cells], partial(print_times, cells), warm=grid.warm or 0)
