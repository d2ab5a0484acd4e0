"""What grids of rows share: figures of their cells, tables of them, and options that list values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Optional, Protocol, TypeVar

import click

from hakmem.bench.table import print_table
from hakmem.screen import Console, Text

if TYPE_CHECKING:
    from hakmem.bench.deterministic import SmallRow
    from hakmem.records import Result


class Cell(Protocol):
    """A cell of a grid."""

    @property
    def name(self) -> str:
        """The name of the cell's row."""

    def small_row(self) -> SmallRow:
        """Returns the cell as a row for callgrind."""


T = TypeVar("T")
C = TypeVar("C", bound=Cell)
Callback = Callable[[click.Context, click.Parameter, Optional[str]], Optional[tuple[T, ...]]]

LIMIT = 1.10
MIMALLOCS = ("mimalloc2", "mimalloc3")


# ---- What was found: {cell: {allocator: figure}} ----


def times_of(result: Result, cells: Sequence[C], operations: int = 1) -> dict[C, dict[str, float]]:
    """Returns nanoseconds for so many operations, without allocators that completed none."""
    rows = result["summary"]["rows"]
    return {cell: {name: entry["ns_per_op"] * operations for name, entry in rows[cell.name].items()
                   if entry.get("ns_per_op")}
            for cell in cells if cell.name in rows}


def instructions_of(result: Result, cells: Sequence[C], operations: int = 1) -> dict[C, dict[str, float]]:
    """Returns instructions for so many operations, counted over the whole program."""
    by_name = {cell.name: cell for cell in cells}
    found: dict[C, dict[str, float]] = {cell: {} for cell in cells}
    for entry in result["instructions"]:
        if entry["total"] is not None:
            found[by_name[entry["row"]]][entry["allocator"]] = entry["per_op"] * operations
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


def figure_cells(figures: dict[str, float], names: Sequence[str]) -> list[str]:
    """Returns the cells of the names' figures."""
    return ["-" if name not in figures else f"{figures[name]:.1f}" if figures[name] < 100 else f"{figures[name]:,.0f}"
            for name in names]


def best_cell(figures: dict[str, float], subject: str, names: Sequence[str]) -> str | Text:
    """Returns the cell of the subject's ratio to the best of the names."""
    best = best_of(figures, names)
    value = ratio(figures, subject, best) if best else None
    return Text(f"{value:.2f} {best}", style="red" if value > LIMIT else "") if value else "-"


def ratio_text(value: float | None, limit: float = 1.0) -> str | Text:
    """Returns a ratio as a colored text: red above the limit, green up to 1."""
    if value is None:
        return "-"
    return Text(f"{value:.2f}", style="red" if value > limit else "green" if value <= 1 else "")


def print_means(console: Console, found: Mapping[C, dict[str, float]], subject: str, peers: Sequence[str]) -> None:
    """Prints for each peer the mean over the common cells, and how many cells are above the limit."""
    lines = []
    for name in peers:
        ratios = [value for figures in found.values() if (value := ratio(figures, subject, name))]
        if ratios:
            lines.append([name, f"{mean_of(ratios):.3f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                          str(sum(value > LIMIT for value in ratios)), str(len(ratios))])
    print_table(console, f"{subject} divided by each: geometric mean over the cells",
                ["", "mean", "least", "most", f"above {LIMIT:.2f}", "cells"], lines)


def print_limit(console: Console, found: Mapping[C, dict[str, float]], subject: str, names: Sequence[str],
                who: str) -> None:
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


# ---- Options ----


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
