"""Runs `hakmem` on a terminal of a given width."""

import sys

import pexpect

import blackbox

ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb"}


def on_terminal(columns, *words):
    """The lines that `hakmem WORDS` prints on a terminal that understands no codes."""
    told = pexpect.spawn(sys.executable, ["-m", "hakmem", *map(str, words)], dimensions=(40, columns),
                         env=blackbox.environment(ENVIRONMENT), encoding="utf-8", timeout=blackbox.HANG)
    text = told.read()
    told.close()
    assert told.exitstatus == 0, text
    return text.replace("\r", "").split("\n")
