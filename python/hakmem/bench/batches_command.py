"""The command `hakmem bench batches`: the whole grid of batches on each allocator, by time or by instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TypeVar

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import batches as grid_of
from hakmem.bench.batches import Cell
from hakmem.bench.command import Pairs, Wishes, allocator_options, measure_rows, print_as, say
from hakmem.bench.instructions_command import count_result
from hakmem.bench.table import print_notes, print_overall, print_table, slices
from hakmem.screen import Console, Text
from hakmem.units import bytes_exact

if TYPE_CHECKING:
    from hakmem.records import Result

T = TypeVar("T")
# {cell: {allocator: figure}}
Found = dict[Cell, dict[str, float]]
Callback = Callable[[click.Context, click.Parameter, Optional[str]], Optional[tuple[T, ...]]]

ROUNDS, MILLISECONDS = 3, 20
LIMIT = 1.10
YARDSTICK = "mimalloc3"
MIMALLOCS = ("mimalloc2", "mimalloc3")
LABEL_WIDTH, RATIOS_WIDTH = 20, 38


# ---- What was found: {cell: {allocator: figure}} ----


def times_of(result: Result, cells: list[Cell]) -> Found:
    """Returns nanoseconds for each pair."""
    rows = result["summary"]["rows"]
    return {cell: {name: entry["ns_per_op"] * grid_of.OPERATIONS_A_PAIR for name, entry in rows[cell.name].items()
                   if "ns_per_op" in entry}
            for cell in cells if cell.name in rows}


def instructions_of(result: Result, cells: list[Cell]) -> Found:
    """Returns instructions for each pair, counted over the whole program."""
    by_name = {cell.name: cell for cell in cells}
    found: Found = {cell: {} for cell in cells}
    for entry in result["instructions"]:
        if entry["total"] is not None:
            found[by_name[entry["row"]]][entry["allocator"]] = entry["per_op"] * grid_of.OPERATIONS_A_PAIR
    return found


def ratio(figures: dict[str, float], subject: str, other: str) -> float | None:
    """Returns the subject's figure divided by the other's; None if one of them is missing."""
    return figures[subject] / figures[other] if figures.get(other) and subject in figures else None


def best_of(figures: dict[str, float], names: Sequence[str]) -> str | None:
    """Returns which of the names has the least figure; None if none has one."""
    return min((name for name in names if name in figures), key=lambda name: figures[name], default=None)


def mean_of(ratios: Sequence[float]) -> float | None:
    """Returns the geometric mean; None for an empty list."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


# ---- Printing ----


def figure_text(figure: float) -> str:
    """Returns a figure as a table shows it."""
    return f"{figure:.1f}" if figure < 100 else f"{figure:,.0f}"


def ratio_text(value: float | None, limit: float = 1.0) -> str | Text:
    """Returns a ratio as a colored text: red above the limit, green up to 1."""
    if value is None:
        return "-"
    return Text(f"{value:.2f}", style="red" if value > limit else "green" if value <= 1 else "")


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
                best = best_of(figures, peers)
                ends = [ratio_text(ratio(figures, subject, yardstick))] if yardstick else []
                if peers:
                    value = ratio(figures, subject, best) if best else None
                    ends.append(Text(f"{value:.2f} {best}", style="red" if value > LIMIT else "") if value else "-")
                table.append(
                    [cell.label, *(figure_text(figures[name]) if name in figures else "-" for name in part), *ends])
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


def print_means(console: Console, found: Found, subject: str, peers: Sequence[str]) -> None:
    """Prints for each peer the mean over the common cells, and how many cells are above the limit."""
    lines = []
    for name in peers:
        ratios = [value for figures in found.values() if (value := ratio(figures, subject, name))]
        if ratios:
            lines.append([name, f"{mean_of(ratios):.3f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                          str(sum(value > LIMIT for value in ratios)), str(len(ratios))])
    print_table(console, f"{subject} divided by each: geometric mean over the cells",
                ["", "mean", "least", "most", f"above {LIMIT:.2f}", "cells"], lines)


def print_limit(console: Console, found: Found, subject: str, names: Sequence[str], who: str) -> None:
    """Prints in which cells the subject exceeds the best of the names by more than the limit."""
    above = []
    for cell, figures in found.items():
        best = best_of(figures, names)
        value = ratio(figures, subject, best) if best else None
        if value and value > LIMIT:
            above.append((value, cell.name, best))
    text = f"Above {LIMIT:.2f} of {who}: {len(above)} of {len(found)} cells"
    if above:
        text += "; the worst: " + ", ".join(f"{name} {value:.2f} ({best})" for value, name, best in
                                            sorted(above, reverse=True)[:8])
    console.print(Text(text), soft_wrap=True)


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
    print_found(console, times_of(result, cells), result, "Nanoseconds a pair", left_out, most)
    print_overall(console, result)
    print_notes(console, result)


# ---- The command ----


def list_of(parse: Callable[[str], T], allowed: Sequence[str] | None = None) -> Callback[T]:
    """Returns a click callback that splits a comma-separated value and parses each word."""
    def split(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[T, ...] | None:
        found = []
        for word in filter(None, value.split(",")) if value else ():
            try:
                one = parse(word.strip())
            except ValueError as error:
                raise click.BadParameter(str(error)) from error
            if allowed and one not in allowed:
                raise click.BadParameter(f"'{word}' is none of {', '.join(allowed)}")
            found.append(one)
        return tuple(dict.fromkeys(found)) or None

    return split


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
@click.option("--name", default="batches", show_default=True, help="Name of the result files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Folder of the results, as of hakmem bench.")
@click.option("--resume", is_flag=True, help="Continue a stopped run that had the same options.")
@allocator_options
def batches(sizes: tuple[int, ...] | None, numbers: tuple[int, ...] | None, orders: tuple[str, ...] | None, touch: str,
            most: int, rounds: int, milliseconds: int, instructions: bool, name: str, out: Path | None, resume: bool,
            allocators: list[str], everything: bool, add: tuple[str, ...], setting: tuple[str, ...], subject: str,
            env: Pairs, warm: int | None, no_calls: bool, as_json: bool, as_csv: bool) -> None:
    """Measure batches of blocks: sizes by numbers by orders of freeing, on each allocator.

    A cell allocates its blocks, frees all of them, and begins again. The tables show nanoseconds a pair of malloc and
    free."""
    cells, left_out = grid_of.grid(sizes or grid_of.SIZES, numbers or grid_of.NUMBERS, orders or grid_of.ORDERS,
                                   {"yes": (True,), "no": (False,), "both": (True, False)}[touch], most)
    if not cells:
        raise click.UsageError(f"--most {most}: every cell holds more than that")
    choose = partial(chosen_allocators.choose, allocators, add, setting, subject, everything)
    if instructions:
        if env or as_csv or resume:
            raise click.UsageError("--instructions goes with neither --env, --csv nor --resume")
        chosen, trouble = choose()
        if trouble:
            say(trouble)
        result = count_result([cell.small_row() for cell in cells], chosen, subject)
        print_as(result, as_json, False, lambda console, counted: print_found(
            console, instructions_of(counted, cells), counted, "Instructions a pair", left_out, most))
        return
    wishes = Wishes(name=name, subject=subject, rounds_least=rounds, rounds_most=rounds, minutes=None, env=env,
                    warm=warm)
    result = measure_rows([cell.row(milliseconds) for cell in cells], choose, wishes, out, None, resume)
    print_as(result, as_json, as_csv, partial(print_times, cells, left_out, most))
