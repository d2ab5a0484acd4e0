"""`hakmem heap --start` and `--stop`: turn the heap profile of a running process on and off from outside."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from hakmem.heap.file import ProfileError, parse_profile
from hakmem.heap.switch import control_of
from hakmem.live.control import PATIENCE, Control, start_profile, stop_profile
from hakmem.live.memory import LiveError, ProcessMemory
from hakmem.units import bytes_text

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile
    from hakmem.heap.source import Process

# If this tool is killed, the process itself ends a profile of limited time so much later.
GRACE_SECONDS = 10


def start(process: Process, mean: int | None) -> None:
    """Turns the profile on and leaves it on."""
    with control_of(process, "heap", True) as control:
        was_on = control.state().profile_on
        taken = start_profile(control, mean)
        what = "takes a heap profile already" if was_on and not mean else "takes a heap profile now"
        click.echo(f"process {process.pid} {what}, a sample every {bytes_text(taken)} in the mean\n"
                   f"`hakmem heap {process.pid}` shows it, `hakmem heap --stop {process.pid}` ends it")


def stop(process: Process) -> None:
    """Turns the profile off."""
    with control_of(process, "heap", False) as control:
        click.echo(f"process {process.pid} takes no heap profile any more; `hakmem heap {process.pid}` still shows "
                   "what it knows" if stop_profile(control) else f"process {process.pid} takes no heap profile")


def during(source: Process, mean: int | None, seconds: float) -> Profile:
    """Returns the Profile of what is allocated within the seconds. A profile that was on before stays on."""
    from hakmem.heap.outside import difference, look

    try:
        memory = ProcessMemory(source.pid)
        control = Control(memory)
        was_on = control.state().profile_on
        try:
            start_profile(control, mean, None if was_on else seconds + GRACE_SECONDS, max(seconds, PATIENCE))
            before = look(memory, control.descriptor)
            click.echo(f"hakmem heap: process {source.pid} takes a heap profile for {seconds:g} s, a sample every "
                       f"{bytes_text(before.heap.mean)} in the mean", err=True)
            time.sleep(seconds)
            profile = difference(before, look(memory, control.descriptor))
        finally:
            if not was_on:
                with suppress(LiveError):
                    stop_profile(control)
    except LiveError as error:
        raise ProfileError(str(error)) from error
    if not profile.sample:
        raise ProfileError(f"process {source.pid} allocated nothing in {seconds:g} s that became a sample, which are "
                           f"{bytes_text(before.heap.mean)} apart in the mean; a smaller --rate sees more")
    return parse_profile(profile.SerializeToString(), source)
