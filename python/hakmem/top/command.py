"""The command `hakmem top`."""

from __future__ import annotations

import concurrent.futures
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hakmem import writing
from hakmem.apart import in_thread
from hakmem.extras import extra, how_to_get
from hakmem.live.memory import LiveError
from hakmem.live.sample import Sample, Sampler, rates
from hakmem.parameters import File, Range
from hakmem.processes import ProcessParameter

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from hakmem.ps.survey import Row

PICTURE = (140, 40)
# The longest look of --once and before the screen. The screen itself goes on waiting and says so.
SECONDS = 60


class TopError(click.ClickException):
    """The process cannot be looked at."""


@click.command()
@click.option("--interval", type=Range(min=0.05, max=3600), default=1.0, show_default=True,
              metavar="SECONDS", help="Time between two looks; more for a large heap.")
@click.option("--once", is_flag=True, help="Print one screen as text, after one interval, which rates need.")
@click.option("--svg", "picture", type=File(dir_okay=False, writable=True), metavar="FILE",
              help="Write one screen as a picture instead.")
@click.argument("pid", type=ProcessParameter(), required=False, metavar="[PID|NAME]")
def top(pid: int | None, interval: float, once: bool, picture: str | None) -> None:
    """Watch the heap of process PID: what its resident memory is, classes, threads, pools, rates.

    Without PID, the command lists the processes on HAKMEM and asks which one to watch. It runs no code in the process.
    Key h explains the figures and the keys."""
    if once and picture:
        raise click.UsageError("--once prints a screen, --svg writes one: take one of them")
    if not (once or picture or sys.stdout.isatty() and sys.stdin.isatty()):
        raise click.UsageError("input or output is no terminal; --once prints one screen as text")
    if pid is None:
        pid = chosen(sys.stdout.isatty() and sys.stdin.isatty() and not (once or picture))
    try:
        sampler = Sampler(pid)
        # Errors of PID show here, before the screen opens.
        first = take(sampler)
        if once:
            time.sleep(interval)
            print_once(first, take(sampler))
            return
    except LiveError as error:
        raise TopError(str(error)) from error
    watch(sampler, first, interval, picture)


def chosen(may_ask: bool) -> int:
    """Returns the PID of the only process on HAKMEM, or of the one that the user picks."""
    from hakmem.ps.command import print_rows
    from hakmem.ps.survey import survey

    rows = survey().rows
    if not rows:
        raise TopError("no process that can be looked at runs on HAKMEM; hakmem run -- PROGRAM starts one")
    if len(rows) == 1:
        return rows[0].pid
    print_rows(rows)
    if not may_ask:
        raise click.UsageError(f"{len(rows)} processes run on HAKMEM; give the PID of one")
    return click.prompt("PID", default=str(rows[0].pid), value_proc=lambda text: pick(text, rows))


def pick(text: str, rows: Iterable[Row]) -> int:
    """Returns the PID that was typed, if it is in the list."""
    if text.strip() not in {str(row.pid) for row in rows}:
        raise click.BadParameter(f"{text!r} is no PID of the list")
    return int(text)


def take(sampler: Sampler) -> Sample:
    """Returns a Sample, if the look ends in time: the process's owner can keep its readers waiting."""
    try:
        return in_thread(sampler.take).result(SECONDS)
    except concurrent.futures.TimeoutError:
        raise LiveError(f"process {sampler.pid} kept its reader waiting for more than {SECONDS} seconds") from None


def print_once(first: Sample, second: Sample) -> None:
    """Prints one screen as text."""
    from hakmem.screen import make_console
    from hakmem.top.plain import print_sample

    print_sample(make_console(), second, rates(first, second))


def watch(sampler: Sampler, first: Sample, interval: float, picture: str | None) -> None:
    """Runs the screen, or writes a picture of it."""
    if picture:
        with extra("top", "a picture of the screen"):
            from hakmem.top.app import Top
    else:
        try:
            from hakmem.top.app import Top
        except ModuleNotFoundError:
            watch_plainly(sampler, first, interval)
            return

    app, drawn = Top(sampler, interval), []
    if picture:
        async def draw(pilot: Pilot[object]) -> None:
            while app.before is None and not app.note.startswith("ended"):
                await pilot.pause(interval / 4)
            drawn.append(app.export_screenshot())
            app.exit()

        app.run(headless=True, size=PICTURE, auto_pilot=draw)
        write_picture(picture, drawn[0])
    else:
        app.run()
    if app.return_code:
        raise SystemExit(app.return_code)
    if app.note:
        click.echo(f"hakmem: {app.note}", err=True)


def watch_plainly(sampler: Sampler, first: Sample, interval: float) -> None:
    """Prints the screen of --once repeatedly, without keys, if the extra's packages are not installed."""
    from hakmem.top.plain import Frame, print_sample

    before, sample = None, first
    try:
        while True:
            frame = Frame()
            frame.print(f"Ctrl-C ends. Keys, sorting and more tables: {how_to_get('top')}")
            print_sample(frame, sample, rates(before, sample))
            frame.show()
            # Looking takes at most a quarter of the time.
            time.sleep(max(interval, 3 * sample.took))
            before, sample = sample, take(sampler)
    except KeyboardInterrupt:
        click.echo()
    except LiveError as error:
        raise TopError(str(error)) from error


def write_picture(picture: str, text: str) -> None:
    """Writes the picture."""
    try:
        writing.write_whole(picture, text.encode())
    except OSError as error:
        raise TopError(f"{picture}: {error.strerror}") from error
