"""The command `hakmem bench instructions`: what an operation costs on each allocator, counted under callgrind."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from hakmem import paths, writing
from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import deterministic, machine
from hakmem.bench.cells import best_of
from hakmem.bench.command import Grid, print_as, say
from hakmem.bench.rows import choose
from hakmem.bench.table import print_table, slices
from hakmem.parameters import split_names
from hakmem.screen import Console, Text, make_console

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.cells import Cell
    from hakmem.bench.deterministic import SmallRow
    from hakmem.records import Entry, Result

T = TypeVar("T")

FORMAT = "hakmem-instructions 1"
STAMP_WIDTH = 28


def chosen_rows(patterns: Sequence[str]) -> list[SmallRow]:
    """Returns the rows that the patterns find, or those of one thread, whose counts repeat anywhere."""
    rows = list(deterministic.load().values())
    rows = choose(rows, patterns, False) if patterns else [row for row in rows if row.threads == 1]
    for row in rows:
        program = paths.program(row.command[0])
        if not program.is_file():
            raise click.ClickException(f"{row.name}: {program} is not there; ./hakmem build builds it")
    return rows


def count_one(row: SmallRow, allocator: Allocator) -> Entry:
    """Returns the entry of one row and allocator. If it cannot be counted, the entry has a `reason` and no figures."""
    counted = deterministic.per_operation(row, paths.build_folder() / "bin", allocator.library, allocator.setting)
    entry = {"row": row.name, "allocator": allocator.name}
    if counted["total"] is None:
        return {**entry, "total": None, "reason": counted["reason"]}
    operations = counted["ops"]
    return {**entry, "ops": operations, "total": round(counted["total"] * operations),
            "library": round(counted["library"] * operations), "per_op": counted["total"],
            "library_per_op": counted["library"]}


def with_bar(runs: list[T]) -> Iterator[T]:
    """Yields the runs, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from runs
        return
    with click.progressbar(runs, label="callgrind", file=sys.stderr) as bar:
        yield from bar


def count_all(rows: Sequence[SmallRow], allocators: Sequence[Allocator]) -> list[Entry]:
    """Returns the entries, row by row. As many run at a time as there are CPUs, which changes no count."""
    pairs = [(row, allocator) for row in rows for allocator in allocators]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = [pool.submit(count_one, *pair) for pair in pairs]
        try:
            return [future.result() for future in with_bar(running)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def count_result(rows: Sequence[SmallRow], allocators: dict[str, Allocator], subject: str) -> Result:
    """Returns the counts of the rows on {name: Allocator}, with the machine, the commit and the commands."""
    return {"format": FORMAT, "command": shlex.join(["hakmem", *sys.argv[1:]]), "commit": machine.describe_commit(),
            "machine": machine.describe_machine(), "subject": subject,
            "allocators": {name: allocator.describe() for name, allocator in allocators.items()},
            "rows": {row.name: {"threads": row.threads, "command": shlex.join(row.command),
                                "base": shlex.join(row.base)} for row in rows},
            "instructions": count_all(rows, list(allocators.values()))}


def count_cells(cells: Sequence[Cell], grid: Grid, print_tables: Callable[[Console, Result], object]) -> None:
    """Counts the cells and prints the result."""
    if grid.env or grid.as_csv or grid.resume:
        raise click.UsageError("--instructions goes with neither --env, --csv nor --resume")
    chosen, trouble = grid.choose()
    if trouble:
        say(trouble)
    print_as(count_result([cell.small_row() for cell in cells], chosen, grid.subject), grid.as_json, False,
             print_tables)


def best_peer(figures: dict[str, float], subject: str) -> str | None:
    """Returns the peer with the least figure; None if there is none, or the subject has no figure."""
    return best_of(figures, [name for name in figures if name != subject]) if subject in figures else None


def is_below_all(figures: dict[str, float], subject: str) -> bool:
    """Returns whether the subject's figure is below that of every peer that could be counted."""
    best = best_peer(figures, subject)
    return best is not None and figures[subject] < figures[best]


def verdict(figures: dict[str, float], subject: str) -> Text:
    """Returns a colored text that compares the subject with the best peer that could be counted."""
    best = best_peer(figures, subject)
    if best is None:
        return Text("-")
    ratio = f"{figures[subject] / figures[best]:.3f}" if figures[best] else "-"
    if is_below_all(figures, subject):
        return Text(f"below all {ratio} {best}", style="green")
    return Text(f"not below {ratio} {best}", style="red")


def figure_text(figure: float) -> str:
    """Returns a figure as the tables show it."""
    return f"{figure:,.2f}" if figure < 1000 else f"{figure:,.0f}"


def print_counts(console: Console, entries: Iterable[Entry], key: str, title: str, names: Sequence[str], subject: str,
                 marked: bool) -> tuple[int, int]:
    """Prints one table, with verdicts if marked. Returns (rows in which the subject is below all, rows)."""
    rows: dict[str, dict[str, float]] = {}
    for entry in entries:
        figures = rows.setdefault(entry["row"], {})
        if entry["total"] is not None:
            figures[entry["allocator"]] = entry[key]
    width = max(10, *map(len, names))
    for part in slices(names, console, width, STAMP_WIDTH * (2 if marked else 1)):
        lines: list[list[str | Text]] = [
            [row, *(figure_text(figures[name]) if name in figures else "-" for name in part),
             *([verdict(figures, subject)] if marked else [])] for row, figures in rows.items()]
        print_table(console, title, ["", *part, *([f"{subject} by best peer"] if marked else [])], lines)
    return sum(is_below_all(figures, subject) for figures in rows.values()), len(rows)


def print_tables(result: Result) -> None:
    """Prints the tables of a result and notes on how to read them."""
    console, subject, entries = make_console(), result["subject"], result["instructions"]
    names = list(result["allocators"])
    below, rows = print_counts(console, entries, "per_op", "Instructions per operation, the whole program", names,
                               subject, len(names) > 1)
    print_counts(console, entries, "library_per_op", "In the allocator's own code", names, subject, False)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    if len(names) > 1:
        say(f"{subject} is below every peer that could be counted in {below} of {rows} rows. This counts the "
            "whole program, because some allocators let the C library fill and copy for them.")
    if "glibc" in names:
        say("The own code of glibc is malloc, free and the like, with what they call.")
    if "tcmalloc" in names:
        say("tcmalloc's usual path needs restartable sequences, which valgrind lacks: another path is counted.")
    told: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry["total"] is None:
            told.setdefault((entry["allocator"], entry["reason"]), []).append(entry["row"])
    for (name, reason), missed in told.items():
        where = "every row" if len(missed) == rows else ", ".join(missed)
        say(f"{name}: not counted in {where}: {reason}")


@click.command("instructions", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN",
              help="Rows whose name the pattern finds; may be given again. Default: those of one thread.")
@click.option("--allocators", callback=split_names, metavar="A,B,...", help="These allocators only.")
@click.option("--all", "everything", is_flag=True,
              help="Also the hardened peers, which are left out by default.")
@click.option("--add", multiple=True, metavar="NAME=LIBRARY", help="One more allocator: any library to preload.")
@click.option("--setting", multiple=True, metavar="ALLOCATOR:NAME=VALUE", help="A variable for one allocator.")
@click.option("--subject", default="hakmem", show_default=True, metavar="NAME",
              help="The allocator that is compared with the others.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write the counts to FILE, too.")
def instructions(patterns: tuple[str, ...], allocators: list[str], everything: bool, add: tuple[str, ...],
                 setting: tuple[str, ...], subject: str, json_file: str | None) -> None:
    """Count the instructions of an operation on each allocator.

    Runs the small rows of deterministic.toml under callgrind, and takes away what starting and ending cost."""
    rows = chosen_rows(patterns)
    chosen, trouble = chosen_allocators.choose(allocators, add, setting, subject, everything)
    if trouble:
        click.echo(f"hakmem: {trouble}", err=True)
    if json_file and not Path(json_file).absolute().parent.is_dir():
        raise click.UsageError(f"--json {json_file}: there is no such folder")
    result = count_result(rows, chosen, subject)
    print_tables(result)
    if json_file:
        try:
            writing.write_whole(json_file, f"{json.dumps(result, indent=1)}\n".encode())
        except OSError as error:
            raise click.ClickException(f"--json {json_file}: {error.strerror}") from error
    if all(entry["total"] is None for entry in result["instructions"]):
        raise click.ClickException("no run could be counted")
