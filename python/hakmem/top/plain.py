"""One screen as text, for pipes and logs, and for repeated printing if textual is not installed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import click

from hakmem import screen
from hakmem.compat import zip_strict
from hakmem.live.sample import RATES, Rates, Sample
from hakmem.top import tables, words

if TYPE_CHECKING:
    from hakmem.screen import Console

BAR_WIDTH = 100
# Move the cursor to the top left; clear the line behind the cursor; clear everything below.
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
VIEWS = ("classes", "threads", "pools")


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
    """Prints the head and the tables of classes, threads and pools. found: the rates."""
    parts = sample.resident.parts()
    for line in (words.title(sample), words.memory_line(sample), words.bar(parts, min(BAR_WIDTH, console.width)),
                 words.key(parts), words.rates_line(found, RATES)):
        console.print(line)
    for name in VIEWS:
        table = tables.VIEWS[name](sample)
        console.print()
        console.print(screen.Text(table.title, style="bold"))
        console.print(drawn(table))


def drawn(table: tables.Table) -> screen.Table:
    """Returns a Table as the console prints it."""
    made = screen.Table()
    for column in table.columns:
        made.add_column(column.title, justify="left" if column.kind == "words" else "right", no_wrap=True)
    for _, row in table.sorted():
        made.add_row(*(tables.value_text(value, column.kind) for value, column in zip_strict(row, table.columns)))
    return made
