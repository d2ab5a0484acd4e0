"""`hakmem trace`: record what a program allocates, look at it, and do it again on any allocator."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hakmem.extras import extra
from hakmem.parameters import FILE, File, Range


@click.group()
def trace() -> None:
    """Record a program's allocations and replay them."""


@trace.command(context_settings={"allow_interspersed_args": False})  # what follows PROGRAM is the program's
@click.option("-o", "--output", type=File(path_type=Path), metavar="FILE",
              help="Where the trace goes; PROGRAM.trace in this folder if not given.")
@click.option("--children", is_flag=True, help="Record child processes too, each into FILE.PID.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def record(ctx: click.Context, output: Path | None, children: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM and record every call of malloc and its family, of all threads.

    Ends with PROGRAM's exit status. If a signal ends PROGRAM, the trace has its calls up to then."""
    from hakmem import paths, starter
    from hakmem.trace.record import record_program

    starter.obstacle(program, paths.recorder_library())
    ctx.exit(record_program([program, *arguments], output, children))


@trace.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.argument("file", type=FILE)
def info(file: Path, as_json: bool) -> None:
    """Tell what a trace holds: calls, sizes, threads, lifetimes, peak."""
    with extra("trace", "hakmem trace info"):
        from hakmem.trace.info import describe

    found = describe(file)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    from hakmem.trace.show import print_info

    print_info(found)


@trace.command()
@click.option("--allocator", "names", multiple=True, metavar="NAME",
              help="An allocator to replay on (glibc, hakmem, a peer); may be repeated. Default: all.")
@click.option("--add", "additions", multiple=True, metavar="NAME=LIBRARY", help="Any other library, too.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Runs on each allocator.")
@click.option("--threads-merged", is_flag=True, help="All operations in one thread, in the recorded order.")
@click.option("--no-touch", is_flag=True, help="Do not write into the blocks, and check nothing.")
@click.option("--limit", type=Range(1), default=600.0, show_default=True, metavar="SECONDS",
              help="Time limit of a run.")
@click.option("--json", "as_json", is_flag=True, help="Print samples and summary as JSON.")
@click.argument("file", type=FILE)
@click.pass_context
def replay(ctx: click.Context, file: Path, names: tuple[str, ...], additions: tuple[str, ...], rounds: int,
           threads_merged: bool, no_touch: bool, limit: float, as_json: bool) -> None:
    """Replay a trace on allocators, round by round, and compare time and memory.

    Ends with 1 if a replay failed on any of them."""
    from hakmem.trace.header import read_header

    read_header(file)
    from hakmem.trace.replay import choose_allocators, replay_trace
    from hakmem.trace.standing import print_replay

    options = [*(["--threads-merged"] if threads_merged else []), *(["--no-touch"] if no_touch else [])]
    chosen, hint = choose_allocators(names, additions)
    result = replay_trace(file, chosen, rounds, options, limit)
    if as_json:
        click.echo(json.dumps(result, indent=1))
    else:
        print_replay(result)
        if hint:
            click.echo(f"Compared without peers: {hint}.", err=True)
    ctx.exit(0 if all(sample["status"] == "ok" for sample in result["samples"]) else 1)
