"""Limits of work on data that others made: the time of our own code, and the resources of tools that we run."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from hakmem.apart import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from types import FrameType

# Limits of a tool that reads a foreign file: seconds (of the clock and of CPU time), bytes of address space and of
# output.
TOOL_SECONDS, TOOL_SPACE, TOOL_OUTPUT = 120, 8 << 30, 256 << 20
# The variables that a tool gets. The owner of its file could read others, or they could change what the tool does.
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")
# The most characters of a tool's error message that are shown.
SAID_MOST = 300


class TooLong(Exception):
    """The work took too long and was ended."""


class ToolFailed(Exception):
    """A tool failed or was ended. The text says how."""


@contextmanager
def seconds_at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong in the body if it takes longer. Python's regular expressions check for signals, so endless
    backtracking is ended too. Threads other than the first get no signals and have no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TooLong
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_tool(command: Sequence[str], text: str, pass_fds: Sequence[int] = (),
             owner: tuple[int, int] | None = None) -> str:
    """Returns a tool's output for a text on its input. owner: (uid, gid) whose rights it gets, if possible."""
    user, group = owner if owner and may_change_user() else (None, None)
    env = {name: os.environ[name] for name in KEPT if name in os.environ}

    libc = ctypes.CDLL(None)

    def bound() -> None:
        # The tool dies with us. A session of its own, below, keeps it from our terminal.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        limits = ((resource.RLIMIT_AS, TOOL_SPACE), (resource.RLIMIT_CPU, TOOL_SECONDS),
                  (resource.RLIMIT_FSIZE, TOOL_OUTPUT), (resource.RLIMIT_CORE, 0))
        for which, value in limits:
            _, hard = resource.getrlimit(which)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (value, value))

    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as said:
        given.write(text.encode("utf-8", "replace"))
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=output, stderr=said, env=env, pass_fds=pass_fds,
                                   preexec_fn=bound, start_new_session=True, user=user, group=group,
                                   extra_groups=[] if user is not None else None)
        try:
            status = process.wait(TOOL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ToolFailed(f"{command[0]} took more than {TOOL_SECONDS} seconds") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        if status != 0:
            said.seek(0)
            words = said.read(SAID_MOST).decode("utf-8", "replace").strip()
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise ToolFailed(f"{command[0]} {how}{f': {words}' if words else ''}")
        output.seek(0)
        return output.read().decode("utf-8", "replace")


def in_own_terms() -> None:
    """Restores the default action of signals that Python ignores. Call it before an exec: the program would inherit
    that they are ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def may_change_user() -> bool:
    """Returns whether this process is root and may change its user."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        rights = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    return rights >> CAP_SETGID & 1 == 1 and rights >> CAP_SETUID & 1 == 1


CAP_SETGID, CAP_SETUID = 6, 7
