"""The command `hakmem bench diff`: one build of HAKMEM beside another, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem import paths
from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import batches as grid_of
from hakmem.bench import rows as bench_rows
from hakmem.bench.command import (
    QUICK_ROUNDS, ROUNDS, ROUNDS_MOST, Wishes, list_rows, measure_rows, print_as)
from hakmem.bench.table import (
    STYLES, interval_text, memory_text, print_notes, print_table, ratio_text, rounds_text, seconds_text)
from hakmem.parameters import Range, split_names
from hakmem.screen import Console, Text

if TYPE_CHECKING:
    from hakmem.bench.allocators import Known
    from hakmem.records import Result

OLD, NEW = "old", "new"
MINUTES = 10.0
BATCH_MS = 20
# The columns of each row: the ratio's name, the median's key, the function that formats it, the title.
SHOWN = (("time", "time_s", seconds_text, "time"), ("cpu", "cpu_s", seconds_text, "CPU"),
         ("peak_rss", "peak_rss_kib", memory_text, "peak RSS"), ("private", "peak_private_kib", memory_text, "private"),
         ("mean_rss", "mean_rss_kib", memory_text, "mean RSS"))


def library_of(text: str | Path) -> Path:
    """Returns the library's path, given that path, a build folder or a checkout."""
    path = Path(text)
    for place in ("lib/libhakmem.so", "build/release/lib/libhakmem.so"):
        if (path / place).is_file():
            return path / place
    return path


def two_builds(old: str | Path, new: str | Path, peers: Sequence[str]) -> Callable[[], Known]:
    """Returns the `choose` function for measure_rows: it returns {name: Allocator} of both builds and the peers, and
    what to tell the user."""
    def choose() -> Known:
        chosen = {OLD: chosen_allocators.from_library(OLD, library_of(old)),
                  NEW: chosen_allocators.from_library(NEW, library_of(new))}
        if chosen[OLD].sha256 == chosen[NEW].sha256:
            raise click.ClickException(f"{chosen[OLD].library} and {chosen[NEW].library} are the same library")
        if not peers:
            return chosen, None
        found, trouble = chosen_allocators.known()
        chosen_allocators.check_names(peers, found)
        return {**chosen, **{name: found[name] for name in peers}}, trouble

    return choose


def print_diff(console: Console, result: Result) -> None:
    """Prints a line for each row: the new build's figures and their ratios to the old build's, with the interval of
    the time. Means follow."""
    lines = []
    for row, entries in result["summary"]["rows"].items():
        new, ratios = entries.get(NEW, {}), entries.get(OLD, {}).get("ratios", {})
        line = [row]
        for figure, key, text, _ in SHOWN:
            ratio = ratios.get(figure)
            line.append(text(new[key]) if key in new else "-")
            if ratio is None:
                line.append("-")
            elif figure == "time":
                tie = "=" if ratio["verdict"] == "tie" else " "
                line.append(Text(f"{ratio['median']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}){tie}",
                                 style=STYLES[ratio["verdict"]]))
            else:
                line.append(ratio_text(ratio))
        lines.append(line)
    head = ["", *(title for _, _, _, name in SHOWN for title in (name, "by old"))]
    print_table(console, "The new build, and its figures divided by the old one's; below 1 it takes less "
                f"({rounds_text(result)})", head, lines)
    names = [name for name in result["allocators"] if name != NEW]
    shown = [(name, result["summary"]["overall"].get(name, {})) for name in names]
    print_table(console, "Geometric means over the rows, with 95 % intervals: the new build by", ["", *(
        title for _, _, _, title in SHOWN), "rows"], [
            [name, *(interval_text(means[figure]) if means.get(figure) else "-" for figure, *_ in SHOWN),
             str(means["time"]["rows"]) if means.get("time") else "-"] for name, means in shown])
    print_notes(console, result)


@click.command("diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("old", type=click.Path(exists=True))
@click.argument("new", type=click.Path(exists=True), required=False)
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN", help="Rows whose name matches.")
@click.option("--batches", is_flag=True, help="The rows are the cells of the grid of batches (hakmem bench batches).")
@click.option("--quick", is_flag=True, help="Few rows, three rounds.")
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="Run exactly N rounds.")
@click.option("--time", "minutes", type=Range(0, min_open=True), metavar="MINUTES",
              help=f"Time that the run may take. Default without --rounds: {MINUTES:g}.")
@click.option("--peers", callback=split_names, metavar="A,B,...", help="Measure these allocators beside them.")
@click.option("--scale", type=Range(0, min_open=True), default=1.0, metavar="FACTOR",
              help="Multiply the work of the rows that name an amount.")
@click.option("--warm", type=click.IntRange(0, 1 << 20), metavar="MIB", help="Memory to touch before a run, at most.")
@click.option("--name", default="diff", show_default=True, help="Name of the result files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Folder of the results.")
@click.option("--resume", is_flag=True, help="Continue a stopped run that had the same options.")
@click.option("--list", "list_only", is_flag=True, help="List the rows and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the samples as CSV.")
def diff(old: str, new: str | None, patterns: tuple[str, ...], batches: bool, quick: bool, rounds: int | None,
         minutes: float | None, peers: list[str], scale: float, warm: int | None, name: str, out: Path | None,
         resume: bool, list_only: bool, as_json: bool, as_csv: bool) -> None:
    """Measure a build of HAKMEM beside an earlier one.

    OLD and NEW are libraries, build folders or checkouts that are built; NEW is this checkout's build if it is left
    out. A second copy of NEW shows the noise."""
    if batches:
        cells, _ = grid_of.grid()
        every = [replace(cell.row(BATCH_MS), quick=cell.order == "fifo" and cell.touch and cell.number <= 10000)
                 for cell in cells]
    else:
        every = bench_rows.load()
    chosen = bench_rows.choose(every, patterns, quick)
    if list_only:
        list_rows(chosen)
        return
    least = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    wishes = Wishes(name=name, subject=NEW, rounds_least=least, rounds_most=rounds or ROUNDS_MOST,
                    minutes=minutes if minutes is not None or rounds else MINUTES, scale=scale, warm=warm)
    result = measure_rows(chosen, two_builds(old, new or paths.hakmem_library(), peers), wishes, out, None, resume)
    print_as(result, as_json, as_csv, print_diff)
