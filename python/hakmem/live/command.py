"""The commands `hakmem stats`, `hakmem explain` and `hakmem map`."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from hakmem.live.heap import as_dict, snapshot
from hakmem.live.memory import LiveError, ProcessMemory

PID = click.IntRange(min=1)


@contextmanager
def plain_errors():
    """What cannot be read ends the command with its text."""
    try:
        yield
    except LiveError as error:
        raise click.ClickException(str(error)) from error


def console():
    """Where nobody looks on, a line is as long as it needs to be."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


@click.command()
@click.argument("pid", type=PID)
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every field.")
@click.option("--prometheus", is_flag=True, help="In Prometheus' text format.")
@click.option("--superslabs", is_flag=True, help="A line for every SuperSlab; with --json, every unit of it too.")
def stats(pid, as_json, prometheus, superslabs):
    """Show where the memory of process PID is: totals, size classes, threads, SuperSlabs.

    The process runs HAKMEM and goes on running: it is read from outside, without a change to it.
    """
    if as_json and prometheus:
        raise click.UsageError("--json and --prometheus exclude each other")
    if superslabs and prometheus:
        raise click.UsageError("--superslabs does not go with --prometheus: a series for each SuperSlab would be thousands")
    with plain_errors():
        shot = snapshot(ProcessMemory(pid))
    if as_json:
        click.echo(json.dumps(as_dict(shot, superslabs), indent=2))
    elif prometheus:
        from hakmem.live.prometheus import prometheus_text
        click.echo(prometheus_text([shot]), nl=False)
    else:
        from hakmem.live.tables import print_snapshot
        print_snapshot(console(), shot, superslabs)


@click.command()
@click.argument("pid", type=PID)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def explain(pid, as_json):
    """Say what each resident byte of process PID is for.

    The parts add up to the kernel's Rss; the difference is printed.
    """
    from hakmem.live.explain import explain_process, explanation_dict, print_explanation
    with plain_errors():
        explanation = explain_process(ProcessMemory(pid))
    if as_json:
        click.echo(json.dumps(explanation_dict(explanation), indent=2))
    else:
        print_explanation(console(), explanation)


@click.command("map")
@click.argument("pid", type=PID)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="The file to write; hakmem-map-PID.html by default.")
def map_command(pid, output):
    """Draw the heap of process PID, SuperSlab by SuperSlab, as one HTML file that needs nothing else."""
    from hakmem.live.map import map_page
    output = output or Path(f"hakmem-map-{pid}.html")
    with plain_errors():
        text = map_page(snapshot(ProcessMemory(pid)))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"-o {output}: {error.strerror}") from error
    click.echo(f"{output}")
