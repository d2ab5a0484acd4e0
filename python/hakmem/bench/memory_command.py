"""The command `hakmem bench memory`: what stays resident where a program writes little, or has freed most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import rows as bench_rows
from hakmem.bench.command import Pairs, Wishes, allocator_options, measure_rows, print_as
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
@click.option("--name", default="memory", show_default=True, help="Name of the result files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Folder of the results, as of hakmem bench.")
@click.option("--resume", is_flag=True, help="Continue a stopped run that had the same options.")
@allocator_options
def memory(patterns: tuple[str, ...], rounds: int, name: str, out: Path | None, resume: bool, allocators: list[str],
           everything: bool, add: tuple[str, ...], setting: tuple[str, ...], subject: str, env: Pairs,
           warm: int | None, no_calls: bool, as_json: bool, as_csv: bool) -> None:
    """Measure what stays resident: sparse blocks, changing sizes, and memory that was freed.

    The tables show what a pattern adds to RSS when that is highest, and what is left of it after 1.5 s without a
    call."""
    try:
        rows = bench_rows.choose(bench_rows.load(FILE), patterns, False)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    choose = partial(chosen_allocators.choose, allocators, add, setting, subject, everything)
    wishes = Wishes(name=name, subject=subject, rounds_least=rounds, rounds_most=rounds, minutes=None, env=env,
                    warm=0 if warm is None else warm)
    result = measure_rows(rows, choose, wishes, out, None, resume)
    print_as(result, as_json, as_csv, print_memory)
