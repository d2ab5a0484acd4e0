"""The command `hakmem bench batches`: the whole grid of batches on each allocator, by time or by instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import batches as grid_of
from hakmem.bench.batches import Cell
from hakmem.bench.cells import (
    LIMIT, MIMALLOCS, best_cell, best_of, figure_cells, instructions_of, list_of, mean_of, print_limit, print_means,
    ratio, ratio_text, times_of)
from hakmem.bench.command import Grid, grid_options
from hakmem.bench.instructions_command import count_cells
from hakmem.bench.table import print_notes, print_overall, print_table, slices
from hakmem.screen import Console, Text
from hakmem.units import bytes_exact

if TYPE_CHECKING:
    from hakmem.records import Result

# {cell: {allocator: figure}}
Found = dict[Cell, dict[str, float]]

ROUNDS, MILLISECONDS = 3, 20
YARDSTICK = "mimalloc3"
LABEL_WIDTH, RATIOS_WIDTH = 20, 38


# ---- Printing ----


def print_cells(console: Console, found: Found, unit: str, subject: str, names: Sequence[str],
                peers: Sequence[str]) -> None:
    """Prints a table for each order, with and without touching."""
    kinds = dict.fromkeys((cell.order, cell.touch) for cell in found)
    yardstick = YARDSTICK if YARDSTICK in peers else None
    heads = [*([f"by {yardstick}"] if yardstick else []), *(["by the best"] if peers else [])]
    for order, touch in kinds:
        lines = {cell: figures for cell, figures in found.items() if (cell.order, cell.touch) == (order, touch)}
        title = f"{unit}, freed {order}, {'a byte of each block written' if touch else 'blocks not touched'}"
        for part in slices(names, console, max(8, *map(len, names)), LABEL_WIDTH + RATIOS_WIDTH):
            table = []
            for cell, figures in lines.items():
                ends = [ratio_text(ratio(figures, subject, yardstick))] if yardstick else []
                if peers:
                    ends.append(best_cell(figures, subject, peers))
                table.append([cell.label, *figure_cells(figures, part), *ends])
            print_table(console, title, ["", *part, *heads], table)


def print_matrix(console: Console, found: Found, title: str,
                 value_of: Callable[[dict[str, float]], float | None]) -> None:
    """Prints sizes down and numbers across. Each figure is the geometric mean over orders and touching."""
    sizes = list(dict.fromkeys(cell.size for cell in found))
    numbers = list(dict.fromkeys(cell.number for cell in found))
    lines = []
    for size in sizes:
        line: list[str | Text] = [bytes_exact(size)]
        for number in numbers:
            values = [
                value_of(figures) for cell, figures in found.items() if (cell.size, cell.number) == (size, number)
            ]
            line.append(ratio_text(mean_of([value for value in values if value]), LIMIT))
        lines.append(line)
    print_table(console, title, ["", *(f"x {number:,}" for number in numbers)], lines)


def print_found(console: Console, found: Found, result: Result, unit: str, left_out: list[Cell], most: int) -> None:
    """Prints every table and sentence about the figures found."""
    subject = result["subject"]
    copy = chosen_allocators.again(subject)
    names = [name for name in result["allocators"] if name != copy]
    peers = [name for name in names if name != subject]
    print_cells(console, found, unit, subject, [subject, *peers], peers)
    if YARDSTICK in peers:
        print_matrix(console, found, f"{subject} divided by {YARDSTICK}, mean of the orders, touched and not",
                     lambda figures: ratio(figures, subject, YARDSTICK))
    if peers:
        print_matrix(
            console, found, f"{subject} divided by the best of the others in each cell, mean of the same",
            lambda figures: ratio(figures, subject, best) if (best := best_of(figures, peers)) else None)
        print_means(console, found, subject, peers)
    mimallocs = [name for name in MIMALLOCS if name in peers]
    if mimallocs:
        print_limit(console, found, subject, mimallocs, f"the best of {' and '.join(mimallocs)}")
    if peers:
        print_limit(console, found, subject, peers, "the best of all")
    if left_out:
        console.print(Text(f"Left out, more than {most:,} MiB: {', '.join(cell.label for cell in left_out)}"),
                      soft_wrap=True)


def print_times(cells: list[Cell], left_out: list[Cell], most: int, console: Console, result: Result) -> None:
    """Prints the tables of measured times."""
    print_found(console, times_of(result, cells, grid_of.OPERATIONS_A_PAIR), result, "Nanoseconds a pair", left_out,
                most)
    print_overall(console, result)
    print_notes(console, result)


# ---- The command ----


def number_of(text: str) -> int:
    """Returns the number of blocks that a text gives; raises ValueError if it is out of range."""
    if not text.isdigit() or not 1 <= int(text) <= 1 << 17:
        raise ValueError(f"'{text}' is no number of blocks from 1 to {1 << 17}")
    return int(text)


@click.command("batches", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sizes", callback=list_of(grid_of.parse_size), metavar="A,B,...",
              help="Sizes of blocks, such as 64 or 4K. Default: 16, times four to 4M.")
@click.option("--numbers", callback=list_of(number_of), metavar="A,B,...",
              help="Blocks in a batch. Default: 10, times ten to 100000.")
@click.option("--orders", callback=list_of(str, ("fifo", "lifo", "mixed", "shuffled")), metavar="A,B,...",
              help="Orders of the frees. Default: fifo, lifo, shuffled.")
@click.option("--touch", type=click.Choice(["yes", "no", "both"]), default="both", show_default=True,
              help="Whether a byte of each block is written.")
@click.option("--most", type=click.IntRange(1), default=grid_of.MOST_MIB, show_default=True, metavar="MIB",
              help="Leave out the cells of more memory.")
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, metavar="N",
              help="Rounds of each cell.")
@click.option("--ms", "milliseconds", type=click.IntRange(1, 100000), default=MILLISECONDS, show_default=True,
              metavar="MILLISECONDS", help="How long a run lasts. The batch in progress is finished.")
@click.option("--instructions", is_flag=True,
              help="Count the instructions of each pair under callgrind, in place of time.")
@grid_options("batches")
def batches(grid: Grid, sizes: tuple[int, ...] | None, numbers: tuple[int, ...] | None,
            orders: tuple[str, ...] | None, touch: str, most: int, milliseconds: int, instructions: bool) -> None:
    """Measure batches of blocks: sizes by numbers by orders of freeing, on each allocator.

    A cell allocates its blocks, frees all of them, and begins again. The tables show nanoseconds a pair of malloc and
    free."""
    cells, left_out = grid_of.grid(sizes or grid_of.SIZES, numbers or grid_of.NUMBERS, orders or grid_of.ORDERS,
                                   {"yes": (True,), "no": (False,), "both": (True, False)}[touch], most)
    if not cells:
        raise click.UsageError(f"--most {most}: every cell holds more than that")
    if instructions:
        count_cells(cells, grid, lambda console, counted: print_found(
            console, instructions_of(counted, cells, grid_of.OPERATIONS_A_PAIR), counted, "Instructions a pair",
            left_out, most))
    else:
        grid.measure([cell.row(milliseconds) for cell in cells], partial(print_times, cells, left_out, most))
