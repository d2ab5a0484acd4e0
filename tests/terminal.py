"""Runs `hakmem` as on a terminal of a given width."""

import contextlib
import io
import os
from unittest import mock

from inprocess import main


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self):
        return True


def on_terminal(columns, *words):
    """The lines that `hakmem WORDS` prints on a terminal that understands no codes."""
    terminal = Terminal()
    with mock.patch.dict(os.environ, {"COLUMNS": str(columns), "TERM": "dumb"}), contextlib.redirect_stdout(terminal):
        main([str(word) for word in words], standalone_mode=False)
    return terminal.getvalue().split("\n")
