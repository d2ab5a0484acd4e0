"""Text with styles, tables and lines for a terminal.

rich does more, but is three times as large as all other packages of the tools together. Only the screen of `hakmem top`
uses it.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable
from typing import TextIO, TypedDict

import click

from hakmem.clean import clean_lines

GAP = "  "
# The least width to which a column of words is narrowed.
NARROWEST = 12
# A column of words is not narrowed further than this as long as the table has columns to leave out.
READABLE = 16
COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
# The levels of red, green and blue in a palette of 256 colors.
CUBE = (0, 95, 135, 175, 215, 255)


def width_of(text: str) -> int:
    """Returns the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
               for one in text)


class Text:
    """Text with styles: a color's name or #rrggbb, bold, dim, italic, reverse. parts: pairs of text and style."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self.parts: list[tuple[str, str]] = []
        self.style = style
        self.append(text)

    def append(self, text: str, style: str | None = None) -> Text:
        """Adds a text. Returns self."""
        if text:
            self.parts.append((clean_lines(text), self.style if style is None else style))
        return self

    def rstrip(self) -> None:
        """Removes blanks at the end."""
        while self.parts and not self.parts[-1][0].rstrip():
            self.parts.pop()
        if self.parts:
            text, style = self.parts[-1]
            self.parts[-1] = text.rstrip(), style

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.parts == other.parts

    def piece(self, start: int, end: int) -> Text:
        """Returns the part between two characters."""
        made, at = Text(), 0
        for text, style in self.parts:
            made.append(text[max(start - at, 0):max(end - at, 0)], style)
            at += len(text)
        return made

    def lines(self, width: int | None) -> list[Text]:
        """Returns lines of at most that many columns, broken between words if possible; None allows any width."""
        plain, start, made = self.plain, 0, []
        for line in plain.split("\n"):
            if width is None or width_of(line) <= width:
                made.append(self.piece(start, start + len(line)))
            else:
                made += [self.piece(start + first, start + last) for first, last in folded(line, max(width, 1))]
            start += len(line) + 1
        return made


def folded(line: str, width: int) -> list[tuple[int, int]]:
    """Returns [(first character, end)] of the parts of a line that is too wide."""
    found, start = [], 0
    while start < len(line):
        end = used = 0
        for end in range(start, len(line)):
            used += width_of(line[end])
            if used > width and end > start:
                break
        else:
            end = len(line)
        if end < len(line):
            blank = line.rfind(" ", start + 1, end + 1)
            end = blank if blank > start else end
        found.append((start, end))
        start = end
        while start < len(line) and line[start] == " ":
            start += 1
    return found


class Table:
    """A table: words are aligned left, figures right. A narrow screen folds columns that may be folded. A narrow
    terminal also leaves columns out, and the caption names them."""

    def __init__(self, title: str = "", show_header: bool = True) -> None:
        self.title, self.show_header, self.caption = title, show_header, ""
        self.columns: list[tuple[Text, str, bool]] = []
        self.spares: list[int] = []
        self.rows: list[list[Text]] = []
        self.breaks: set[int] = set()

    def add_column(self, name: str | Text = "", justify: str = "left", no_wrap: bool = False, spare: int = 0) -> None:
        """Adds a column. spare: a narrow terminal leaves out the columns with the greatest number first; 0: never."""
        self.columns.append((as_text(name, "bold"), justify, no_wrap))
        self.spares.append(spare)

    def add_row(self, *cells: str | Text, end_section: bool = False) -> None:
        """Adds a row. end_section: an empty line follows."""
        while len(self.columns) < len(cells):
            self.add_column()
        self.rows.append([as_text(cell) for cell in cells])
        if end_section:
            self.breaks.add(len(self.rows))

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def fitting(self, most: int) -> Table:
        """Returns the table without the columns for which a terminal of that width has no room."""
        least = [width if no_wrap else min(width, READABLE)
                 for width, (_, _, no_wrap) in zip(self.needed(), self.columns)]
        kept = list(range(len(self.columns)))
        while sum(least[place] + len(GAP) for place in kept) - len(GAP) > most:
            first = max((self.spares[place] for place in kept), default=0)
            if not first:
                break
            kept = [place for place in kept if self.spares[place] != first]
        made = Table(self.title, self.show_header)
        for place in kept:
            made.add_column(*self.columns[place])
        made.rows, made.breaks = [[row[place] for place in kept if place < len(row)] for row in self.rows], self.breaks
        gone = [name.plain for place, (name, _, _) in enumerate(self.columns) if place not in kept and name.plain]
        left_out = f"A wider terminal also shows: {'; '.join(dict.fromkeys(gone))}" if gone else ""
        made.caption = "\n".join(line.plain for text in (self.caption, left_out) if text
                                 for line in Text(text).lines(most))
        return made

    def needed(self) -> list[int]:
        """Returns the width that each column needs to be shown without folds."""
        cells = [[name] for name, _, _ in self.columns] if self.show_header else [[] for _ in self.columns]
        for row in self.rows:
            for place, cell in enumerate(row):
                cells[place].append(cell)
        return [max((width_of(line.plain) for cell in column for line in cell.lines(None)), default=0)
                for column in cells]

    def widths(self, most: int) -> list[int]:
        """Returns the width of each column, for a terminal with that many columns."""
        found = self.needed()
        over = sum(found) + len(GAP) * (len(found) - 1) - most
        while over > 0:
            widest = max((place for place, (_, _, no_wrap) in enumerate(self.columns) if not no_wrap),
                         key=lambda place: found[place], default=None)
            if widest is None or found[widest] <= NARROWEST:
                break  # lines longer than the screen
            found[widest] -= 1
            over -= 1
        return found

    def lines(self, width: int) -> list[Text]:
        """Returns the table's lines as Texts."""
        widths = self.widths(width)
        made = [Text(self.title, "bold")] if self.title else []
        rows = ([[name for name, _, _ in self.columns]] if self.show_header else []) + self.rows
        for number, row in enumerate(rows, 1 - self.show_header):
            cells = [cell.lines(None if no_wrap else width)
                     for cell, width, (_, _, no_wrap) in zip(row, widths, self.columns)]
            for line in range(max((len(cell) for cell in cells), default=0)):
                made.append(self.line([cell[line] if line < len(cell) else Text() for cell in cells], widths))
            if number in self.breaks and number < len(self.rows):
                made.append(Text())
        return made + ([Text(line, "dim") for line in self.caption.split("\n")] if self.caption else [])

    def line(self, cells: list[Text], widths: list[int]) -> Text:
        """Returns one line of cells."""
        made = Text()
        for place, (cell, width, (_, justify, _)) in enumerate(zip(cells, widths, self.columns)):
            blank = " " * max(width - width_of(cell.plain), 0)
            made.append(GAP if place else "")
            made.append(blank if justify == "right" else "")
            for text, style in cell.parts:
                made.append(text, style)
            made.append(blank if justify != "right" else "")
        made.rstrip()
        return made


def as_text(value: str | Text, style: str = "") -> Text:
    """Returns a value as a Text."""
    return value if isinstance(value, Text) else Text(value, style)


class Console:
    """Prints lines. A file that is no terminal gets no styles. width: wider lines are folded (the terminal's)."""

    def __init__(self, width: int | None = None, stderr: bool = False, file: TextIO | None = None) -> None:
        self.file = file or (sys.stderr if stderr else sys.stdout)
        self.is_terminal = self.file.isatty() and os.environ.get("TERM") != "dumb"
        self.width = width or shutil.get_terminal_size().columns
        # Whether Tables leave out columns that do not fit. A file keeps all.
        self.leaves_out = self.file.isatty()

    def print(self, item: str | Text | Table = "", soft_wrap: bool = False) -> None:
        """Prints a text or a Table. soft_wrap leaves it to the terminal to fold long lines."""
        if isinstance(item, Table):
            lines = (item.fitting(self.width) if self.leaves_out else item).lines(self.width)
        else:
            lines = as_text(item).lines(None if soft_wrap else self.width)
        for line in lines:
            self.write(self.styled(line) if self.is_terminal else line.plain)

    def write(self, line: str) -> None:
        """Writes a line."""
        click.echo(line, file=self.file, color=self.is_terminal)

    def styled(self, text: Text) -> str:
        """Returns a text with the terminal's codes for its styles."""
        return "".join(click.style(part, **style_of(style)) if style else part for part, style in text.parts)


class ClickStyle(TypedDict, total=False):
    """The arguments of click.style() that a style has."""

    fg: int | str | tuple[int, int, int]
    bold: bool
    dim: bool
    italic: bool
    reverse: bool


EFFECTS: dict[str, ClickStyle] = {
    "bold": {"bold": True}, "dim": {"dim": True}, "italic": {"italic": True}, "reverse": {"reverse": True}}


def style_of(style: str) -> ClickStyle:
    """Returns a style as click.style() takes it."""
    made: ClickStyle = {}
    for word in style.split():
        if word in EFFECTS:
            made.update(EFFECTS[word])
        elif "NO_COLOR" not in os.environ and word in COLORS:
            made["fg"] = word
        elif "NO_COLOR" not in os.environ and word.startswith("#"):
            made["fg"] = color_of(word)
    return made


def color_of(word: str) -> int | tuple[int, int, int]:
    """Returns a color #rrggbb as the terminal supports it: itself, or the nearest of 256."""
    red, green, blue = bytes.fromhex(word[1:])
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return red, green, blue
    return 16 + 36 * step_of(red) + 6 * step_of(green) + step_of(blue)


def step_of(part: int) -> int:
    """Returns the step of CUBE that is nearest to a color's red, green or blue."""
    return min(range(len(CUBE)), key=lambda step: abs(CUBE[step] - part))


def make_console() -> Console:
    """Returns a console for standard output. If it is no terminal, its width fits all tables."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


PLAIN_WIDTH = 160


SPARKS = "▁▂▃▄▅▆▇█"


def spark(values: Iterable[float | None], width: int) -> str:
    """Returns the last values as bars of eight heights, from least to greatest. Equal values are low bars."""
    shown = [value for value in values if value is not None][-max(width, 0):]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    return "".join(SPARKS[int((value - low) * (len(SPARKS) - 1) / (high - low)) if high > low else 0]
                   for value in shown)
