"""Handles standard streams that the caller has closed, that cannot be written, or whose encoding lacks a character."""

from __future__ import annotations

import errno
import io
import os
import sys

# (number, name, mode), lowest first: a file that is opened takes the lowest free number.
STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
# Errors of a write to a file that is open.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare() -> None:
    """Opens /dev/null in place of each closed stream, so that no other file gets the stream's number. Makes the open
    output streams print "?" for characters that their encoding lacks."""
    for number, name, mode in STREAMS:
        stream = getattr(sys, name)
        if stream is None:
            drop(number)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def drop(number: int) -> None:
    """Points a descriptor at /dev/null. Programs that are started inherit it."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(number, True)
        return
    os.dup2(null, number)
    os.close(null)


def output_failed(error: OSError) -> bool:
    """Returns whether an error comes from writing to standard output. If so, drops what its buffer still holds."""
    if error.filename is not None or error.errno not in NO_ROOM:
        return False
    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout.fileno())
    return True
