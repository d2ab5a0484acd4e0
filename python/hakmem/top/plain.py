"""One screen as text, for pipes and logs, and for repeated printing if textual is not installed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import click

from hakmem import screen
from hakmem.live import tables
from hakmem.live.sample import RATES, Rates, Sample
from hakmem.live.show import drawn
from hakmem.top import head

if TYPE_CHECKING:
    from hakmem.screen import Console

BAR_WIDTH = 100
# Move the cursor to the top left; clear the line behind the cursor; clear everything below.
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
VIEWS = ("classes", "threads", "pools", "parts")


class Frame(screen.Console):
    """A terminal's whole screen: collects lines, as many as fit, and shows them all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.height = shutil.get_terminal_size().lines
        self.kept: list[str] = []

    def write(self, line: str) -> None:
        """Adds a line."""
        self.kept.append(line)

    def show(self) -> None:
        """Shows the lines."""
        shown = "".join(f"{line}{CLEAR_LINE}\r\n" for line in self.kept[:self.height - 1])
        click.echo(f"{HOME}{shown}{CLEAR_BELOW}", nl=False, color=True)


def print_sample(console: Console, sample: Sample, found: Rates | None) -> None:
    """Prints the head and the tables of classes, threads, pools and hits. found: the rates."""
    parts = sample.resident.parts()
    for line in (head.title(sample), head.memory_line(sample), head.bar(parts, min(BAR_WIDTH, console.width)),
                 head.key(parts), head.rates_line(found, RATES)):
        console.print(line)
    for name in VIEWS:
        table = tables.view(name, sample.shot, sample.resident.superslabs)
        console.print()
        console.print(drawn(table, table.order))
