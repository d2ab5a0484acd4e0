"""The options --start, --stop and --rate of `hakmem heap` and `hakmem guard`, which turn the heap profile or the guards
of a running process on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hakmem.amount import MEAN_MOST, Amount
from hakmem.heap.source import AnySource, Process

if TYPE_CHECKING:
    from hakmem.live.control import Control

Function = TypeVar("Function", bound=Callable[..., Any])


def switch_options(start: str, stop: str, rate: str) -> Callable[[Function], Function]:
    """Returns a decorator that gives a command the three options. start, stop, rate: their help."""
    def decorate(function: Function) -> Function:
        for option in (click.option("--rate", type=Amount(1, MEAN_MOST), metavar="BYTES", help=rate),
                       click.option("--stop", is_flag=True, help=stop),
                       click.option("--start", is_flag=True, help=start)):
            function = option(function)
        return function
    return decorate


def process_to_switch(sources: Sequence[AnySource], start: bool, stop: bool, rate: int | None) -> Process | None:
    """Returns the process that --start or --stop is for; None without these options. Raises UsageError if the three
    options or the sources do not fit together."""
    if rate and not start:
        raise click.UsageError("--rate goes with --start")
    if not start and not stop:
        return None
    if start and stop or len(sources) > 1 or not isinstance(sources[0], Process):
        raise click.UsageError("--start or --stop takes one PID or NAME of a process")
    return sources[0]


@contextmanager
def control_of(process: Process, command: str, starting: bool) -> Iterator[Control]:
    """Yields the Control of a process to the command `hakmem COMMAND --start` (starting) or `--stop`. A process that
    does not answer yet becomes a note on stderr, because it follows later. Another LiveError ends the command."""
    from hakmem.live.control import Control, Unanswered
    from hakmem.live.memory import LiveError, ProcessMemory

    try:
        yield Control(ProcessMemory(process.pid))
    except Unanswered as error:
        back = f"; `hakmem {command} --stop {process.pid}` takes it back" if starting else ""
        click.echo(f"hakmem {command}: {error}{back}", err=True)
    except LiveError as error:
        raise click.ClickException(str(error)) from error
