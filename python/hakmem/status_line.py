"""Draws a status line on the terminal that is updated in place."""

from __future__ import annotations

import os
import shutil
import sys

import click

# Move the cursor to the start of the line; clear the line behind the cursor.
BACK, CLEAR = "\r", "\x1b[K"


def clock(seconds: float) -> str:
    """Returns seconds as minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


def is_terminal() -> bool:
    """Returns whether a line on standard error can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def draw_line(text: str) -> None:
    """Replaces the line on standard error by a text; "" removes it."""
    width = shutil.get_terminal_size().columns
    click.echo(f"{BACK}{text[:width - 1]}{CLEAR}", err=True, nl=False)
