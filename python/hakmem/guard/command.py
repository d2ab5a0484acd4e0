"""`hakmem guard`: what the reports of sampled guards say, with functions and source lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.compat import zip_strict
from hakmem.heap.source import Address, AnySource, Process, Source
from hakmem.heap.switch import control_of, process_to_switch, switch_options
from hakmem.parameters import debug_dir_option
from hakmem.phrases import plural
from hakmem.units import bytes_text

if TYPE_CHECKING:
    from hakmem.guard.file import Report
    from hakmem.guard.names import Frame

WORDS = {
    "overflow": "beyond the end", "underflow": "before the start", "use-after-free": "after free",
    "no-block": "near no block", "double-free": "freed twice", "invalid-free": "not the start of a block",
    "damage-behind": "written beyond the end", "damage-before": "written before the start",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@debug_dir_option
@switch_options(start="Turn guards on in a process that runs without them.",
                stop="Turn guards off. Guarded blocks stay guarded until they are freed.",
                rate="With --start: mean bytes of allocation between guarded blocks.  [default: the process's "
                     "HAKMEM_GUARD_RATE, 8M]")
@click.argument("files", nargs=-1, required=True, type=Source(), metavar="FILE|PID|NAME...")
def guard(files: tuple[AnySource, ...], as_json: bool, debug_folders: tuple[Path, ...], start: bool, stop: bool,
          rate: int | None) -> None:
    """Show the errors that sampled guards have found, with functions and source lines.

    FILE is what HAKMEM_GUARD_FILE named. PID or NAME is a process: whether guards are on in it, and how many errors
    they have found. --start and --stop write into the process, with a debugger's rights."""
    processes = [source for source in files if isinstance(source, Process)]
    if any(isinstance(source, Address) for source in files):
        raise click.UsageError("reports are in a file, not at an address")
    if processes and len(files) > 1:
        raise click.UsageError("a process stands alone")
    if switched := process_to_switch(files, start, stop, rate):
        switch(switched, start, rate)
    elif processes:
        show_process(processes[0].pid, as_json)
    if processes:
        return
    from hakmem.guard.file import read_reports
    from hakmem.guard.names import name_frames

    reports = [report for path in files if isinstance(path, Path) for report in read_reports(path)]
    frames, notes = name_frames(reports, debug_folders)
    for note in dict.fromkeys(notes):
        click.echo(f"hakmem guard: {note}", err=True)
    if as_json:
        click.echo(json.dumps([as_data(report, named) for report, named in zip_strict(reports, frames)], indent=1))
        return
    for number, (report, named) in enumerate(zip_strict(reports, frames)):
        click.echo(("\n" if number else "") + "\n".join(lines_of(report, named)))


def place_of(report: Report) -> str:
    """Returns where the address lies relative to the block."""
    block = f"a block of {plural(report.size, 'byte')}{' that is free' if report.freed else ''}"
    if report.offset < 0:
        return f"{plural(-report.offset, 'byte')} before the start of {block}"
    if report.offset >= report.size:
        return f"{plural(report.offset - report.size, 'byte')} behind the end of {block}"
    return f"at byte {report.offset:,} of {block}"


def lines_of(report: Report, named: dict[int, list[Frame]]) -> Iterator[str]:
    """Yields the lines of a report."""
    what = f"{report.function}({report.address:#x})" if report.function else f"{report.access} at {report.address:#x}"
    where = "" if report.block is None else f": {place_of(report)}"
    yield f"{WORDS[report.error]}: {what}{where}"
    when = datetime.fromtimestamp(report.time_ns / 1e9, timezone.utc)
    yield f"  thread {report.thread} ({report.thread_name}) of process {report.process}, {when:%Y-%m-%d %H:%M:%S} UTC"
    for stack in sorted(report.stacks, key=lambda stack: stack.what in ("allocated", "freed")):
        yield f"  {stack.what} by thread {stack.thread}:"
        for address in stack.frames:
            for frame in named[address]:
                yield f"    {frame_line(frame)}"
        if not stack.frames:
            yield "    no stack is known"


def frame_line(frame: Frame) -> str:
    """Returns the line of a frame."""
    if frame.function:
        source = f"{frame.file}:{frame.line}" if frame.file and frame.line else frame.file or frame.module
        return f"{frame.function}  {source}"
    return f"{frame.module}+{frame.offset:#x}" if frame.module else f"{frame.address:#x}"


def as_data(report: Report, named: dict[int, list[Frame]]) -> dict[str, object]:
    """Returns a report as values for JSON."""
    return {
        "error": report.error, "access": report.access or None, "function": report.function or None,
        "address": hex(report.address), "process": report.process, "time_ns": str(report.time_ns),
        "thread": {"id": report.thread, "name": report.thread_name},
        "block": None if report.block is None else {"address": hex(report.block), "size": report.size,
                                                    "offset": report.offset, "freed": report.freed},
        "stacks": {stack.what: {"thread": stack.thread, "frames": [
            {"address": hex(frame.address), "function": frame.function, "file": frame.file, "line": frame.line,
             "module": frame.module, "offset": frame.offset}
            for address in stack.frames for frame in named[address]]} for stack in report.stacks}}


def show_process(pid: int, as_json: bool) -> None:
    """Prints a process's own figures, read from outside without changing it."""
    from hakmem.live.descriptor import find
    from hakmem.live.memory import LiveError, ProcessMemory

    try:
        memory = ProcessMemory(pid)
        descriptor = find(memory)
        if "guard" not in descriptor.roots:
            raise click.ClickException(f"process {pid}: its HAKMEM {descriptor.version} has no guards")
        state = descriptor.root(memory, "guard")
    except LiveError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"pid": pid, "on": bool(state["on"]), **{
            name: state[name] for name in ("count", "live", "allocated", "reports")}}, indent=1))
        return
    click.echo(f"guards are {'on' if state['on'] else 'off'}: {state['live']:,} of {state['count']:,} places in use, "
               f"{state['allocated']:,} blocks guarded so far, {state['reports']:,} errors reported")
    if not state["on"]:
        click.echo(f"`hakmem guard --start {pid}` turns them on")


def switch(process: Process, on: bool, mean: int | None) -> None:
    """Turns guards on or off from outside."""
    from hakmem.live.control import start_guards, stop_guards

    with control_of(process, "guard", on) as control:
        if on:
            mean = start_guards(control, mean)
            click.echo(f"process {process.pid} guards a block every {bytes_text(mean)} of allocation in the mean; it "
                       "reports to its stderr, and to HAKMEM_GUARD_FILE if it was started with it")
        else:
            stopped = stop_guards(control)
            click.echo(f"process {process.pid} guards no {'more ' if stopped else ''}blocks")
