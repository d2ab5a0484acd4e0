"""The command `hakmem top`."""

import sys
import time
from pathlib import Path

import click

from hakmem.live.memory import LiveError
from hakmem.top.sample import Sampler, rates

PICTURE = (140, 40)


class TopError(click.ClickException):
    """The process cannot be looked at."""


@click.command()
@click.option("--interval", type=click.FloatRange(min=0.05, max=3600), default=1.0, show_default=True,
              metavar="SECONDS", help="From one look to the next; a large heap is looked at less often.")
@click.option("--once", is_flag=True, help="Print one screen as text; it takes one interval, as rates do.")
@click.option("--svg", "picture", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write one screen as a picture instead.")
@click.argument("pid", type=click.IntRange(min=1))
def top(pid, interval, once, picture):
    """Watch the heap of process PID: what its resident memory is, classes, threads, pools, rates.

    Nothing runs in the process. Key h tells what the figures mean and the keys do."""
    if once and picture:
        raise click.UsageError("--once prints a screen, --svg writes one: take one of them")
    if not (once or picture or sys.stdout.isatty() and sys.stdin.isatty()):
        raise click.UsageError("input or output is no terminal; --once prints one screen as text")
    try:
        sampler = Sampler(pid)
        # What is wrong with PID is said here, before there is a screen.
        first = sampler.take()
        if once:
            time.sleep(interval)
            print_once(first, sampler.take())
            return
    except LiveError as error:
        raise TopError(str(error)) from error
    watch(sampler, interval, picture)


def print_once(first, second):
    from hakmem.bench.table import make_console
    from hakmem.top.plain import print_sample

    print_sample(make_console(), second, rates(first, second))


def watch(sampler, interval, picture):
    from hakmem.top.app import Top

    app, drawn = Top(sampler, interval), []
    if picture:
        async def draw(pilot):
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


def write_picture(picture, text):
    try:
        Path(picture).write_text(text, encoding="utf-8")
    except OSError as error:
        raise TopError(f"{picture}: {error.strerror}") from error
