"""The command `hakmem advise`."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem import paths
from hakmem.clean import clean
from hakmem.completion import complete_program
from hakmem.library import known_options
from hakmem.parameters import Range
from hakmem.processes import ProcessParameter, read_one

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MINUTES, SECONDS = 3.0, 2.0
INTERRUPTED = 130
# How long looking at a process may take, besides the time for which it is watched.
LOOK_SECONDS = 120
SERVICE = re.compile(r"/([^/\n]+\.service)$", re.MULTILINE)


class AdviseCommand(click.Command):
    """Takes words after -- as a program; without --, the one word is a process."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words."""
        ctx.meta["program"] = "--" in args
        ctx.allow_interspersed_args = "--" not in args
        return super().parse_args(ctx, args)


def complete_words(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers a program after --, without it a process."""
    if ctx.meta.get("program"):
        return complete_program(ctx, parameter, incomplete)
    return ProcessParameter(served=False).shell_complete(ctx, parameter, incomplete)


@click.command(cls=AdviseCommand, context_settings={"allow_interspersed_args": False})
@click.option("--time", "minutes", type=Range(0, min_open=True), default=MINUTES, show_default=True,
              metavar="MINUTES", help="For a program: the time that its runs may take.")
@click.option("--try", "tried", multiple=True, metavar="NAME=VALUE",
              help="For a program: try this option; others only if --try names them, too.")
@click.option("--input", "input_file", type=click.Path(exists=True, dir_okay=False, readable=True), metavar="FILE",
              help="For a program: its standard input. Default: /dev/null.")
@click.option("--limit", type=Range(0, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
              help="For a program: the time after which a run is ended.")
@click.option("--status", type=click.IntRange(0, 255), default=0, show_default=True, metavar="N",
              help="For a program: the exit status that it ends with when all is well.")
@click.option("--warm", type=click.IntRange(0, 1 << 20), metavar="MIB",
              help="For a program: memory to touch before a run, at most. Default: 1024, or a quarter of what is free.")
@click.option("--seconds", type=Range(0, 3600), default=SECONDS, show_default=True,
              help="For a process on HAKMEM: how long it is watched.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every figure.")
@click.argument("words", nargs=-1, required=True, metavar="PID|NAME | -- PROGRAM [ARGUMENTS]",
                type=click.UNPROCESSED, shell_complete=complete_words)
@click.pass_context
def advise(ctx: click.Context, minutes: float, tried: tuple[str, ...], input_file: str | None, limit: float,
           status: int, warm: int | None, seconds: float, as_json: bool, words: tuple[str, ...]) -> None:
    """Tell what HAKMEM saves or would save, and which options to set, with the figures behind it.

    A PROGRAM runs in turns on the system's malloc, on HAKMEM, and on HAKMEM with one option at a time. Options that
    seem to help are measured again. PROGRAM must end by itself; for a server, give the PID of a process under load.

    A process is read from outside and stays as it is. If it runs on another malloc, the command tells what can be known
    of its memory, and how to try HAKMEM."""
    if "--" in words:
        raise click.UsageError(f"{words[0]} stands before --: give a program behind --, or a PID or name without --")
    if ctx.meta["program"]:
        of_program(ctx, minutes, tried, input_file, limit, status, warm, as_json, words)
        return
    if len(words) > 1:
        raise click.UsageError(f"one PID or name is wanted; for a program: hakmem advise -- {' '.join(words)}")
    if "/" in words[0]:
        raise click.UsageError(f"for a program: hakmem advise -- {words[0]}")
    of_process(ProcessParameter(served=False).convert(words[0], None, ctx), seconds, as_json)


def of_process(pid: int, seconds: float, as_json: bool) -> None:
    """Advises on a process."""
    from hakmem.advise import foreign, show
    from hakmem.advise.process import look
    from hakmem.apart import watched
    from hakmem.live.descriptor import NotHakmem
    from hakmem.live.memory import LiveError, ProcessMemory, sense
    from hakmem.screen import make_console

    watched(seconds + LOOK_SECONDS,
            f"no end after {seconds + LOOK_SECONDS:g} seconds: process {pid} keeps its readers "
            "waiting, or is very large")
    try:
        memory = ProcessMemory(pid)
        process = read_one(pid)
        try:
            found = look(memory, seconds)
            data = show.process_dict(found)
            printed = partial(show.print_process, found=found, process=process)
        except NotHakmem:
            with sense(memory):
                other = foreign.look(memory)
            data = show.foreign_dict(other)
            printed = partial(show.print_foreign, found=other, process=process, unit=service_of(pid))
    except LiveError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(data, indent=1))
    else:
        printed(make_console())


def service_of(pid: int) -> str | None:
    """Returns the systemd service to which a process belongs; None if there is none."""
    try:
        found = SERVICE.search(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return None
    return clean(found[1]) if found else None


def of_program(ctx: click.Context, minutes: float, tried: Sequence[str], input_file: str | None, limit: float,
               status: int, warm: int | None, as_json: bool, command: tuple[str, ...]) -> None:
    """Advises on a program."""
    from hakmem.advise import program, show
    from hakmem.bench.allocators import from_library, glibc
    from hakmem.bench.command import default_warm, require_launcher
    from hakmem.bench.compare import find_program, program_row
    from hakmem.bench.progress import for_terminal
    from hakmem.bench.runner import Conditions, RunError
    from hakmem.screen import make_console
    from hakmem.starter import ask

    require_launcher()
    find_program(command[0])
    library = paths.hakmem_library()
    known = known_options(library.read_bytes())
    candidates = [ask("setting", "--try:", library, setting) for setting in tried] or [
        setting for setting in program.CANDIDATES if setting.partition("=")[0] in known]
    hakmem = from_library(program.SUBJECT, library)
    system = replace(glibc(), name=program.SYSTEM)
    try:
        with tempfile.TemporaryDirectory(prefix="hakmem-advise-") as folder:
            conditions = Conditions(files=Path(folder), own_environment=True, input=input_file)
            outcome = program.advise_program(
                program_row(command, limit), hakmem, system, candidates, conditions, folder, budget=minutes * 60,
                warm=default_warm(warm), status=status, progress=for_terminal)
    except program.ProgramFailed as error:
        raise click.ClickException(
            f"{command[0]}: {error}\nA program that does not end by itself: run it with "
            "hakmem run, and ask for hakmem advise PID. One that should end with another status: "
            "--status N.") from error
    except RunError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("hakmem: stopped before the first round", err=True)
        ctx.exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(show.program_dict(outcome, command), indent=1))
    else:
        show.print_program(make_console(), outcome, command)
    if not (outcome.first.whole and (outcome.second is None or outcome.second.whole)):
        ctx.exit(INTERRUPTED)
