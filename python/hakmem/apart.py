"""Does work in a separate process if others can delay it. That process has limits on its time and its memory.

A read of another process's memory can wait in the kernel for as long as that process's owner likes. The reader cannot
end it then, not even at Ctrl-C: Python handles a signal only after the call has returned. Another process can kill the
reader.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hakmem.phrases import signal_name

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

PR_SET_PDEATHSIG = 1
# Work that has not ended this many seconds after Ctrl-C is killed.
GRACE = 2


class Late(Exception):
    """The work took too long and was ended."""


class Failed(Exception):
    """The work's process ended without a result."""


def bound(space: int, parent: int) -> None:
    """Limits this process: its address space in bytes, no core file, and death when `parent` dies."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound_space(space)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def bound_space(space: int) -> None:
    """Limits this process's address space, in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [space, *(value for value in (soft, hard) if value != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))


def ended_text(status: int) -> str:
    """Returns how a process ended, as a text."""
    return f"it ended with status {status}" if status >= 0 else f"it was ended by {signal_name(-status)}"


def in_steps(function: Callable[[T], object], items: Iterable[T], seconds: float,
             space: int) -> Iterator[tuple[T, Any]]:
    """Yields (item, function(item)) for each item, computed in a child process. The function must return JSON values.

    An item that takes longer than `seconds` yields a Late; an item whose process fails yields a Failed. A new child
    then goes on with the next item."""
    items, at, result = list(items), 0, None
    while at < len(items):
        child, answers = fork_steps(function, items[at:], space)
        try:
            for result in read_steps(answers, seconds):
                if result is None:
                    break
                yield items[at], result[0]
                at += 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.close(answers)
            status = os.waitpid(child, 0)[1]
        if at < len(items) and result is None:
            # The item on which the child was working when its answers stopped.
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            yield items[at], Late() if late else Failed(ended_text(os.waitstatus_to_exitcode(status)))
            at += 1


def flush() -> None:
    """Writes buffered output. Without this, parent and child would write it twice after a fork."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def fork_steps(function: Callable[[T], object], items: Sequence[T], space: int) -> tuple[int, int]:
    """Returns (PID, end of a pipe) of a child, which computes the items and sends a line of JSON for each."""
    here, there = os.pipe()
    parent = os.getpid()
    flush()
    child = os.fork()
    if child:
        os.close(there)
        return child, here
    try:
        os.close(here)
        bound(space, parent)
        for item in items:
            data = json.dumps([function(item)]).encode() + b"\n"
            while data:
                data = data[os.write(there, data):]
        os._exit(0)
    except BaseException:  # the end of the pipe tells the parent
        os._exit(1)


def read_steps(answers: int, seconds: float) -> Iterator[list[Any] | None]:
    """Yields the list of each line when it comes. Yields None at the end, or after `seconds` without a line."""
    text, end = b"", time.monotonic() + seconds
    while True:
        if not select.select([answers], [], [], max(end - time.monotonic(), 0))[0]:
            yield None
            return
        part = os.read(answers, 1 << 20)
        if not part:
            yield None
            return
        *lines, text = (text + part).split(b"\n")
        for line in lines:
            yield json.loads(line)
            end = time.monotonic() + seconds


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Returns a Future of function(), which runs in a thread that nothing waits for. A thread that hangs in the
    kernel ends with the process."""
    future: Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
    threading.Thread(target=work, daemon=True).start()
    return future


def watched(seconds: float, what: str) -> None:
    """Returns in a child process. The caller's own process does not return: it waits for the child and ends as the
    child does. After `seconds` it kills the child and prints `what`. Does nothing if standard output is replaced, as
    in tests: the child's output would be lost."""
    if sys.stdout is not sys.__stdout__:
        return
    flush()
    parent = os.getpid()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        return
    interrupted = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: interrupted.append(number))
    status = wait_for(child, time.monotonic() + seconds, interrupted)
    if status is None:
        if not interrupted:
            os.write(2, f"Error: {what}\n".encode())
        os._exit(128 + interrupted[0] if interrupted else 1)
    if status < 0:
        # Ends by the same signal as the child.
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        os._exit(128 - status)
    os._exit(status)


def wait_for(child: int, end: float, interrupted: list[int]) -> int | None:
    """Returns the child's exit status (negative for a signal), or None if it was late and was killed."""
    told, ending = False, opened(child)
    while True:
        if interrupted and not told:
            # The terminal sends a signal to the child as well, but kill sends it only to us.
            told, end = True, min(end, time.monotonic() + GRACE)
            os.kill(child, interrupted[0])
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        if ending is None:
            time.sleep(0.01)
        else:
            select.select([ending], [], [], 0.1)


def opened(child: int) -> int | None:
    """Returns a descriptor by which select() sees the child's end; None with a kernel before 5.3."""
    try:
        return os.pidfd_open(child)
    except OSError:
        return None
