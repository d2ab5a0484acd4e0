"""`hakmem run --budget`: sets limits for a program and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.amount import number_of

if TYPE_CHECKING:
    from hakmem.supervise import Ending


@dataclass(frozen=True)
class Figure:
    """A figure that can be limited. exact: it needs a record of every allocation."""

    name: str
    unit: str
    about: str
    exact: bool = False


FIGURES = {one.name: one for one in (
    Figure("peak", "bytes", "most memory resident at once, as the kernel counts it"),
    Figure("heap", "bytes", "most memory that HAKMEM had from the system at once"),
    Figure("allocations", "count", "blocks allocated", exact=True),
    Figure("allocated", "bytes", "bytes allocated, all together", exact=True),
    Figure("inuse", "bytes", "bytes not freed at the end, lost or not", exact=True),
    Figure("leaked", "bytes", "bytes lost at the end: nothing points to them", exact=True))}


@dataclass(frozen=True)
class Bound:
    """One part of a budget."""

    figure: Figure
    most: int

    def text(self, value: int) -> str:
        """Returns a line with the figure and its budget."""
        from hakmem.heap.show import value_text  # as slow as all other imports of `run` together

        kept = "within" if value <= self.most else "above"
        return f"{self.figure.name} {value_text(value, self.figure.unit)} is {kept} its budget of {value_text(self.most, self.figure.unit)}"


def parse_bounds(text: str) -> tuple[Bound, ...]:
    """Returns the limits of FIGURE=MOST,..."""
    bounds: dict[str, Bound] = {}
    for part in text.split(","):
        name, equals, most = part.partition("=")
        figure, number = FIGURES.get(name.strip().replace("-", "")), number_of(most)
        if figure is None or not equals:
            raise wrong(f"{part!r}: FIGURE=MOST is wanted, and the figures are {', '.join(FIGURES)}")
        if number is None:
            raise wrong(f"{part!r}: {most!r} is no number such as 0, 1e6, 200M or 1.5G")
        if figure.name in bounds:
            raise wrong(f"{figure.name} is given twice")
        bounds[figure.name] = Bound(figure, number)
    return tuple(bounds.values())


def wrong(text: str) -> click.BadParameter:
    """Returns the error for limits that do not fit."""
    return click.BadParameter(text, param_hint="--budget")


def is_exact(bounds: Sequence[Bound]) -> bool:
    """Returns whether a bound needs a record of every allocation."""
    return any(bound.figure.exact for bound in bounds)


def figures_of(ending: Ending, bounds: Sequence[Bound]) -> dict[str, int]:
    """Returns {figure's name: its value} of a process that is held at its end."""
    from hakmem.live.descriptor import find
    from hakmem.live.memory import ProcessMemory, sense
    from hakmem.live.sites import read_sites

    memory = ProcessMemory(ending.thread)
    descriptor = find(memory)
    found: dict[str, int] = {}
    with sense(memory):
        records = descriptor.root(memory, "table_memory")["bytes"] if is_exact(bounds) else 0
        found["heap"] = descriptor.root(memory, "shared_pool")["footprint_peak"]
        # The records of allocations are not the program's memory.
        found["peak"] = max(peak_of(ending.thread) - records, 0)
    if is_exact(bounds):
        heap = read_sites(memory, descriptor)
        for name, part, place in (("allocations", "allocated", 0), ("allocated", "allocated", 1), ("inuse", "in_use",
                                                                                                   1)):
            found[name] = sum(getattr(site, part)[place] for site in heap.sites) // heap.one
    if any(bound.figure.name == "leaked" for bound in bounds):
        from hakmem.leaks.report import look

        seen = look(ending)
        found["leaked"] = int(seen.blocks.sizes[seen.lost].sum())
    return {bound.figure.name: found[bound.figure.name] for bound in bounds}


def peak_of(thread: int) -> int:
    """Returns the peak of resident bytes."""
    for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def markdown_of(command: str, bounds: Sequence[Bound], figures: dict[str, int]) -> list[str]:
    """Returns the lines of a table of the figures and their budgets."""
    from hakmem.heap.show import value_text
    from hakmem.markdown import cell, table

    rows = [(value_text(figures[bound.figure.name], bound.figure.unit), value_text(bound.most, bound.figure.unit),
             bound.figure.name, "within" if figures[bound.figure.name] <= bound.most else "above") for bound in bounds]
    kept = all(figures[bound.figure.name] <= bound.most for bound in bounds)
    lines = [f"### {'Within' if kept else 'Above'} budget: `{cell(command)}`", ""]
    return lines + table(("value", "budget", "figure", ""), rows, right=2)
