"""Writes files whole: a reader finds the old content or the new, and a failure leaves the old."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes the bytes to a temporary file beside the target and renames it; raises OSError if that fails.

    A target that is no regular file (a device, a pipe) gets the bytes itself: a rename would replace it. So does a file
    in a folder that cannot be written to. A symbolic link stays, and its target is written."""
    target = os.path.realpath(path)
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        regular = None
    if regular is False or regular and not os.access(os.path.dirname(target), os.W_OK):
        with open(path, "wb") as file:
            file.write(data)
        return
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(target), prefix=f".{os.path.basename(target)}.",
                                         delete=False) as draft:
            temporary = draft.name
            draft.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise
