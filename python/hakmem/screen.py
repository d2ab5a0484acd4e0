"""Text with styles, tables and lines for a terminal.

rich does more, but is three times as large as all other packages of the tools together. Only the screen of `hakmem top`
uses it.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata

import click

from hakmem.clean import clean_lines

GAP = "  "
# The least width to which a column of words is narrowed.
NARROWEST = 12
COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
# The levels of red, green and blue in a palette of 256 colors.
CUBE = (0, 95, 135, 175, 215, 255)


def width_of(text):
    """Returns the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
               for one in text)


class Text:
    """Text with styles: a color's name or #rrggbb, bold, dim, italic, reverse. parts: pairs of text and style."""

    def __init__(self, text="", style=""):
        self.parts, self.style = [], style
        self.append(text)

    def append(self, text, style=None):
        """Adds a text. Returns self."""
        if text:
            self.parts.append((clean_lines(text), self.style if style is None else style))
        return self

    def rstrip(self):
        """Removes blanks at the end."""
        while self.parts and not self.parts[-1][0].rstrip():
            self.parts.pop()
        if self.parts:
            text, style = self.parts[-1]
            self.parts[-1] = text.rstrip(), style

    @property
    def plain(self):
        """The text without styles."""
        return "".join(text for text, _ in self.parts)

    def __eq__(self, other):
        return isinstance(other, Text) and self.parts == other.parts

    def piece(self, start, end):
        """Returns the part between two characters."""
        made, at = Text(), 0
        for text, style in self.parts:
            made.append(text[max(start - at, 0):max(end - at, 0)], style)
            at += len(text)
        return made

    def lines(self, width):
        """Returns lines of at most that many columns, broken between words if possible; None allows any width."""
        plain, start, made = self.plain, 0, []
        for line in plain.split("\n"):
            if width is None or width_of(line) <= width:
                made.append(self.piece(start, start + len(line)))
            else:
                made += [self.piece(start + first, start + last) for first, last in folded(line, max(width, 1))]
            start += len(line) + 1
        return made


def folded(line, width):
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
    """A table: words are aligned left, figures right. A narrow screen folds columns that may be folded."""

    def __init__(self, title="", show_header=True):
        self.title, self.show_header, self.caption = title, show_header, ""
        self.columns, self.rows, self.breaks = [], [], set()

    def add_column(self, name="", justify="left", no_wrap=False):
        """Adds a column."""
        self.columns.append((as_text(name, "bold"), justify, no_wrap))

    def add_row(self, *cells, end_section=False):
        """Adds a row. end_section: an empty line follows."""
        while len(self.columns) < len(cells):
            self.add_column()
        self.rows.append([as_text(cell) for cell in cells])
        if end_section:
            self.breaks.add(len(self.rows))

    @property
    def row_count(self):
        """The number of rows."""
        return len(self.rows)

    def widths(self, most):
        """Returns the width of each column, for a terminal with that many columns."""
        cells = [[name] for name, _, _ in self.columns] if self.show_header else [[] for _ in self.columns]
        for row in self.rows:
            for place, cell in enumerate(row):
                cells[place].append(cell)
        found = [
            max((width_of(line.plain) for cell in column for line in cell.lines(None)), default=0) for column in cells
        ]
        over = sum(found) + len(GAP) * (len(found) - 1) - most
        while over > 0:
            widest = max((place for place, (_, _, no_wrap) in enumerate(self.columns) if not no_wrap),
                         key=lambda place: found[place], default=None)
            if widest is None or found[widest] <= NARROWEST:
                break  # lines longer than the screen
            found[widest] -= 1
            over -= 1
        return found

    def lines(self, width):
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
        return made + ([Text(self.caption, "dim")] if self.caption else [])

    def line(self, cells, widths):
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


def as_text(value, style=""):
    """Returns a value as a Text."""
    return value if isinstance(value, Text) else Text(value, style)


class Console:
    """Prints lines. A file that is no terminal gets no styles. width: wider lines are folded (the terminal's)."""

    def __init__(self, width=None, stderr=False, file=None):
        self.file = file or (sys.stderr if stderr else sys.stdout)
        self.is_terminal = self.file.isatty() and os.environ.get("TERM") != "dumb"
        self.width = width or shutil.get_terminal_size().columns

    def print(self, item="", soft_wrap=False):
        """Prints a text or a Table. soft_wrap leaves it to the terminal to fold long lines."""
        lines = item.lines(self.width) if isinstance(item,
                                                     Table) else as_text(item).lines(None if soft_wrap else self.width)
        for line in lines:
            self.write(self.styled(line) if self.is_terminal else line.plain)

    def write(self, line):
        """Writes a line."""
        click.echo(line, file=self.file, color=self.is_terminal)

    def styled(self, text):
        """Returns a text with the terminal's codes for its styles."""
        return "".join(click.style(part, **style_of(style)) if style else part for part, style in text.parts)


def style_of(style):
    """Returns a style as click.style() takes it."""
    made = {}
    for word in style.split():
        if word in ("bold", "dim", "italic", "reverse"):
            made[word] = True
        elif "NO_COLOR" not in os.environ and word in COLORS:
            made["fg"] = word
        elif "NO_COLOR" not in os.environ and word.startswith("#"):
            made["fg"] = color_of(word)
    return made


def color_of(word):
    """Returns a color #rrggbb as the terminal supports it: itself, or the nearest of 256."""
    parts = tuple(bytes.fromhex(word[1:]))
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return parts
    red, green, blue = (min(range(6), key=lambda step: abs(CUBE[step] - part)) for part in parts)
    return 16 + 36 * red + 6 * green + blue


def make_console():
    """Returns a console for standard output. If it is no terminal, its width fits all tables."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


PLAIN_WIDTH = 160
