"""The commands `hakmem analyze` and `hakmem advise`. They differ in what they do with a program: `advise` only tries
options."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import click

from hakmem import paths
from hakmem.clean import clean
from hakmem.completion import complete_program
from hakmem.library import known_options
from hakmem.parameters import FILE, Range, split_names
from hakmem.processes import ProcessParameter, read_one
from hakmem.writing import write_whole

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hakmem.analyze.options import Outcome
    from hakmem.bench.allocators import Allocator

F = TypeVar("F", bound=Callable[..., Any])

MINUTES, SECONDS = 3.0, 2.0
INTERRUPTED = 130
# How long looking at a process may take, besides the time for which it is watched.
LOOK_SECONDS = 120
SERVICE = re.compile(r"/([^/\n]+\.service)$", re.MULTILINE)


class AnalyzeCommand(click.Command):
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


OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--against", callback=split_names, metavar="A,B,...",
                 help="For a program: these allocators side by side: glibc, mimalloc, or any of hakmem peers."),
    click.option("--instructions", "counted", is_flag=True,
                 help="For a program: count instructions, too, with valgrind."),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                 help="For a program: set an option of the library."),
    click.option("--time", "minutes", type=Range(0, min_open=True), metavar="MINUTES",
                 help="For a program: also try options, for so long. Default of advise: 3."),
    click.option("--try", "tried", multiple=True, metavar="NAME=VALUE",
                 help="For a program: try this option; others only if --try names them, too."),
    click.option("--input", "input_file", type=click.Path(exists=True, dir_okay=False, readable=True), metavar="FILE",
                 help="For a program: its standard input. Default: /dev/null."),
    click.option("--limit", type=Range(0, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
                 help="For a program: the time after which a run is ended."),
    click.option("--status", type=click.IntRange(0, 255), default=0, show_default=True, metavar="N",
                 help="For a program: the exit status that it ends with when all is well."),
    click.option("--warm", type=click.IntRange(0, 1 << 20), metavar="MIB",
                 help="For a program: memory to touch before a run that is timed, at most. Default: 1024, or a quarter "
                 "of what is free."),
    click.option("--seconds", type=Range(0, 3600), default=SECONDS, show_default=True,
                 help="For a process on HAKMEM: how long it is watched."),
    click.option("--html", type=FILE, metavar="FILE", help="For a program: write the page to FILE, too."),
    click.option("--json", "as_json", is_flag=True, help="As JSON, with every figure."),
    click.argument("words", nargs=-1, required=True, metavar="PID|NAME | -- PROGRAM [ARGUMENTS]",
                   type=click.UNPROCESSED, shell_complete=complete_words),
    click.pass_context,
]


@dataclass(frozen=True)
class Wanted:
    """The options, for a program."""

    against: list[str]
    counted: bool
    settings: tuple[str, ...]
    minutes: float | None
    tried: tuple[str, ...]
    input_file: str | None
    limit: float
    status: int
    warm: int | None
    html: Path | None
    as_json: bool


def with_options(function: F) -> F:
    """Adds OPTIONS to a command."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(cls=AnalyzeCommand, context_settings={"allow_interspersed_args": False})
@with_options
def analyze(ctx: click.Context, words: tuple[str, ...], seconds: float, **options: Any) -> None:
    """Tell what costs a program time and memory, ranked, and which option or change takes each away.

    PROGRAM runs once under each tool that the machine has: strace, perf, the cycle profile, and counters of the
    processor. The page names what could not be seen. PROGRAM must end by itself; for a server, give the PID of a
    process under load.

    A process is read from outside and stays as it is. If it runs on another malloc, the command tells what can be known
    of its memory, and how to try HAKMEM."""
    wanted = Wanted(**options)
    if is_program(ctx, words, seconds, wanted.as_json):
        of_program(ctx, wanted, words)


@click.command(cls=AnalyzeCommand, context_settings={"allow_interspersed_args": False})
@with_options
def advise(ctx: click.Context, words: tuple[str, ...], seconds: float, **options: Any) -> None:
    """Tell what HAKMEM saves or would save, and which options to set: hakmem analyze --time 3 without its page.

    A PROGRAM runs in turns on the system's malloc, on HAKMEM, and on HAKMEM with one option at a time. Options that
    seem to help are measured again. PROGRAM must end by itself; for a server, give the PID of a process under load."""
    wanted = Wanted(**options)
    if wanted.against or wanted.counted or wanted.html or wanted.settings:
        raise click.UsageError("--against, --instructions, --html and --set are options of hakmem analyze")
    if is_program(ctx, words, seconds, wanted.as_json):
        with failing(words):
            outcome = try_options(ctx, wanted, words)
        tell_options(wanted, outcome, words)
        end_early(ctx, outcome)


def is_program(ctx: click.Context, words: tuple[str, ...], seconds: float, as_json: bool) -> bool:
    """Returns whether the words are a program. If they are a process, tells about it."""
    name = ctx.info_name
    if "--" in words:
        raise click.UsageError(f"{words[0]} stands before --: give a program behind --, or a PID or name without --")
    if ctx.meta["program"]:
        return True
    if len(words) > 1:
        raise click.UsageError(f"one PID or name is wanted; for a program: hakmem {name} -- {' '.join(words)}")
    if "/" in words[0]:
        raise click.UsageError(f"for a program: hakmem {name} -- {words[0]}")
    of_process(ProcessParameter(served=False).convert(words[0], None, ctx), seconds, as_json)
    return False


def of_process(pid: int, seconds: float, as_json: bool) -> None:
    """Advises on a process."""
    from hakmem.analyze import foreign, show
    from hakmem.analyze.process import look
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


@contextmanager
def failing(command: Sequence[str]) -> Iterator[None]:
    """Turns failures of runs into click errors."""
    from hakmem.analyze.observe import RunFailed
    from hakmem.bench.runner import RunError

    try:
        yield
    except RunFailed as error:
        raise click.ClickException(
            f"{command[0]}: {error}\nA program that does not end by itself: run it with "
            "hakmem run, and ask for hakmem analyze PID. One that should end with another status: "
            "--status N.") from error
    except RunError as error:
        raise click.ClickException(str(error)) from error


def try_options(ctx: click.Context, wanted: Wanted, command: tuple[str, ...]) -> Outcome:
    """Runs the program with one option at a time."""
    from hakmem.analyze import options
    from hakmem.bench.allocators import from_library, glibc
    from hakmem.bench.command import default_warm, require_launcher
    from hakmem.bench.compare import find_program, program_row
    from hakmem.bench.progress import for_terminal
    from hakmem.bench.runner import Conditions
    from hakmem.starter import ask

    require_launcher()
    find_program(command[0])
    library = paths.hakmem_library()
    known = known_options(library.read_bytes())
    candidates = [ask("setting", "--try:", library, setting) for setting in wanted.tried] or [
        setting for setting in options.CANDIDATES if setting.partition("=")[0] in known]
    try:
        with tempfile.TemporaryDirectory(prefix="hakmem-advise-") as folder:
            conditions = Conditions(files=Path(folder), own_environment=True, input=wanted.input_file)
            return options.advise_program(
                program_row(command, wanted.limit), from_library(options.SUBJECT, library),
                replace(glibc(), name=options.SYSTEM), candidates, conditions, folder,
                budget=(wanted.minutes or MINUTES) * 60, warm=default_warm(wanted.warm), status=wanted.status,
                progress=for_terminal)
    except KeyboardInterrupt:
        click.echo("hakmem: stopped before the first round", err=True)
        ctx.exit(INTERRUPTED)


def tell_options(wanted: Wanted, outcome: Outcome, command: tuple[str, ...]) -> None:
    """Prints what the options do."""
    from hakmem.analyze import show
    from hakmem.screen import make_console

    if wanted.as_json:
        click.echo(json.dumps(show.program_dict(outcome, command), indent=1))
    else:
        show.print_program(make_console(), outcome, command)


def end_early(ctx: click.Context, outcome: Outcome) -> None:
    """Ends as an interrupted command does, if the rounds were."""
    if not (outcome.first.whole and (outcome.second is None or outcome.second.whole)):
        ctx.exit(INTERRUPTED)


def chosen(names: Sequence[str]) -> list[Allocator]:
    """Returns the allocators of --against."""
    from hakmem.bench.allocators import known
    from hakmem.bench.installed import KNOWN, how_to_get

    found, trouble = known(installed=True)
    made = []
    for name in names:
        same = next((peer for peer in (name, *(KNOWN[name].peers if name in KNOWN else ())) if peer in found), None)
        if same is None:
            ways = [how_to_get([name]) if name in KNOWN else None, trouble]
            raise click.UsageError(f"--against {name}: there is no such allocator, only {', '.join(found)}"
                                   + "".join(f"; {way}" for way in ways if way))
        made.append(found[same])
    return made


def of_program(ctx: click.Context, wanted: Wanted, command: tuple[str, ...]) -> None:
    """Analyzes a program."""
    from hakmem.analyze import page, show
    from hakmem.analyze.bottlenecks import fault_price, rank
    from hakmem.analyze.observe import Observer, functions_of, own_malloc
    from hakmem.bench.allocators import Allocator, from_library
    from hakmem.bench.command import require_launcher
    from hakmem.bench.compare import find_program, program_row
    from hakmem.bench.runner import Conditions
    from hakmem.screen import make_console
    from hakmem.starter import ask

    require_launcher()
    program = find_program(command[0])
    library = paths.hakmem_library()
    known = known_options(library.read_bytes())
    settings = {name: value for name, value in os.environ.items() if name in known}
    for word in wanted.settings:
        name, _, value = ask("setting", "--set:", library, word).partition("=")
        settings[name] = value
    if sys.stderr.isatty() or not wanted.as_json:
        click.echo(f"hakmem: runs {command[0]} under each tool until it ends by itself, {wanted.limit:g} seconds at "
                   "most each time; for a server: hakmem analyze PID", err=True)
    own = own_malloc(program)
    if own and wanted.against:
        raise click.UsageError(f"--against: {command[0]} defines malloc itself, so no other can be preloaded into it")
    others = chosen(wanted.against)
    subject = Allocator(own, None, "", "", None) if own else from_library("hakmem", library)
    outcome = None
    with tempfile.TemporaryDirectory(prefix="hakmem-analyze-") as folder, failing(command):
        conditions = Conditions(files=Path(folder), env=tuple(settings.items()), own_environment=True,
                                input=wanted.input_file)
        observer = Observer(program_row(command, wanted.limit), conditions, wanted.status)
        ours = own in (None, "hakmem")
        seen = [observer.observe(subject, ours, functions_of(library) if own == "hakmem" else frozenset(),
                                 wanted.counted)]
        seen += [observer.observe_other(other, wanted.counted) for other in others]
        if wanted.minutes or wanted.tried:
            outcome = try_options(ctx, wanted, command)
    found = page.Analysis(command, settings, seen, rank(seen[0], settings, fault_price()))
    if wanted.html:
        try:
            write_whole(wanted.html, page.html(found).encode())
        except OSError as error:
            raise click.ClickException(f"{wanted.html}: cannot be written: {error.strerror}") from error
    if wanted.as_json:
        tried = {"options": show.program_dict(outcome, command)} if outcome else {}
        click.echo(json.dumps({**page.page_dict(found), **tried}, indent=1))
        return
    page.print_page(make_console(), found)
    if outcome:
        tell_options(wanted, outcome, command)
        end_early(ctx, outcome)
