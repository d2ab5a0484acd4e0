"""What `hakmem advise` recommends: an option, with the measurement that supports it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hakmem.processes import Process

# A saving below either of these is not worth an option.
LEAST_BYTES, LEAST_SHARE = 4 << 20, 0.05
# The most options that are advised at a time.
OPTIONS_MOST = 2


@dataclass(frozen=True)
class Advice:
    """An option to set, and the measurement that supports it. saves: bytes, if the option is meant to save memory."""

    setting: str  # NAME=VALUE
    why: str
    saves: int = 0


def worth(saved: float, whole: float) -> bool:
    """Returns whether a saving is worth an option."""
    return saved >= LEAST_BYTES and saved >= whole * LEAST_SHARE


def command_text(process: Process | None) -> str:
    """Returns a process's command line to be typed; a server that writes a sentence there shows no arguments."""
    if process is None or not process.words:
        return "PROGRAM"
    return shlex.join(process.words) if " " not in process.words[0] else f"{process.name} ARGUMENTS"
