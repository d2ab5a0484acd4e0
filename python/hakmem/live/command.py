"""The commands `hakmem stats`, `hakmem explain` and `hakmem map`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hakmem import writing
from hakmem.live.heap import as_dict, snapshot
from hakmem.live.memory import UNSOUND, LiveError, ProcessMemory, problem_text
from hakmem.parameters import FILE, Range
from hakmem.processes import ProcessParameter
from hakmem.screen import Console

PID = ProcessParameter()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns errors of reading into the command's error, with one line of text."""
    try:
        yield
    except LiveError as error:
        raise click.ClickException(str(error)) from error
    except UNSOUND as error:
        raise click.ClickException(f"what is in its memory makes no sense ({problem_text(error)})") from error


def console() -> Console:
    """Returns the console; if the output is no terminal, lines are as long as they need to be."""
    return Console(width=None if sys.stdout.isatty() else 200)


@click.command()
@click.argument("pid", type=PID, metavar="PID|NAME")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every field.")
@click.option("--prometheus", is_flag=True, help="In Prometheus' text format.")
@click.option("--superslabs", is_flag=True, help="A line for every SuperSlab; with --json, every unit of it too.")
def stats(pid: int, as_json: bool, prometheus: bool, superslabs: bool) -> None:
    """Show where the memory of process PID is: totals, size classes, threads, SuperSlabs.

    The process must run on HAKMEM. It is read from outside, and nothing in it changes.
    """
    if as_json and prometheus:
        raise click.UsageError("--json and --prometheus exclude each other")
    if superslabs and prometheus:
        raise click.UsageError(
            "--superslabs does not go with --prometheus: a series for each SuperSlab would be thousands")
    with plain_errors():
        shot = snapshot(ProcessMemory(pid))
    if as_json:
        click.echo(json.dumps(as_dict(shot, superslabs), indent=2))
    elif prometheus:
        from hakmem.live.prometheus import prometheus_text
        click.echo(prometheus_text(shot), nl=False)
    else:
        from hakmem.live.show import print_snapshot
        print_snapshot(console(), shot, superslabs)


@click.command()
@click.argument("pid", type=PID, metavar="PID|NAME")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--sites", is_flag=True, help="Also tell, by allocation site, why Rss is above what was asked for.")
@click.option("--pins", is_flag=True, help="Also tell whose blocks keep free memory from going back.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Sites to show.")
@click.option("--idle", type=Range(0.1, 600), metavar="N",
              help="With --sites: also show memory that did not change for N seconds.")
def explain(pid: int, as_json: bool, sites: bool, pins: bool, number: int, idle: float | None) -> None:
    """Say what each resident byte of process PID is for.

    The parts add up to the kernel's Rss; the difference is printed.
    """
    if idle and not sites:
        raise click.UsageError("--idle goes with --sites")
    if sites or pins:
        explain_sites(pid, as_json, sites, pins, number, idle)
        return
    from hakmem.live.explain import explain_process, explanation_dict, print_explanation
    with plain_errors():
        memory = ProcessMemory(pid)
        explanation, sampled = explain_process(memory), sampled_of(memory)
    if as_json:
        told = {"bytes": sampled[0], "error": sampled[1]} if sampled else None
        click.echo(json.dumps({**explanation_dict(explanation), "sampled": told}, indent=2))
    else:
        print_explanation(console(), explanation, sampled)


def sampled_of(memory: ProcessMemory) -> tuple[int, int] | None:
    """Returns the bytes in use by the heap profile, and the half of their interval; None: there is no profile."""
    from hakmem.live.descriptor import find
    from hakmem.live.sites import read_sites

    try:
        heap = read_sites(memory, find(memory))
    except LiveError:
        return None
    from hakmem.heap.outside import totals_of

    return totals_of(heap)["in use"] if any(site.sizes for site in heap.sites) else None


def explain_sites(pid: int, as_json: bool, sites: bool, pins: bool, number: int, idle: float | None) -> None:
    """Runs explain --sites and --pins. A process without a heap profile gets everything but the sites."""
    import time

    from hakmem.heap import pins as pinning
    from hakmem.heap.source import Process
    from hakmem.heap.symbolize import summary, symbolize
    from hakmem.heap.why import as_data, print_why, profile_of, stacks_of
    from hakmem.live.explain import print_explanation
    from hakmem.live.why import why_of

    source, found = Process(pid), None
    with plain_errors():
        memory = ProcessMemory(pid)
        why = why_of(memory, idle, time.sleep)
        if why.sites:
            profile = profile_of(memory, why, source)
            notes = symbolize(profile)
            found = stacks_of(why, profile, source)
            if notes:
                click.echo(f"hakmem: {summary(notes)}", err=True)
    if as_json:
        data = as_data(why, found, False) if sites else {}
        if pins:
            data["pins"] = pinning.as_data(why, found, found, False)
        click.echo(json.dumps(data, indent=2))
        return
    print_explanation(console(), why.explanation)
    if sites:
        console().print()
        print_why(console(), why, found, "above", "flat", number, False)
    if pins:
        console().print()
        pinning.print_pins(console(), why, found, found, "flat", number, False)


@click.command("map")
@click.argument("pid", type=PID, metavar="PID|NAME")
@click.option("-o", "--output", type=FILE,
              help="The file to write; hakmem-map-PID.html by default.")
def map_command(pid: int, output: Path | None) -> None:
    """Draw the heap of process PID, SuperSlab by SuperSlab, as one HTML file that needs nothing else."""
    from hakmem.live.map import map_page
    output = output or Path(f"hakmem-map-{pid}.html")
    with plain_errors():
        text = map_page(snapshot(ProcessMemory(pid)))
    try:
        writing.write_whole(output, text.encode())
    except OSError as error:
        raise click.ClickException(f"-o {output}: {error.strerror}") from error
    click.echo(f"{output}")
