"""The command `hakmem bench`."""

from __future__ import annotations

import datetime
import fcntl
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from hakmem import paths
from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import calls, machine, store
from hakmem.bench import rows as bench_rows
from hakmem.bench.progress import for_terminal
from hakmem.bench.runner import Conditions, RunError
from hakmem.bench.schedule import Plan, State
from hakmem.bench.session import make_header, make_result, run_session
from hakmem.extras import extra
from hakmem.parameters import FILE, Range, split_names

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator, Known
    from hakmem.bench.rows import Row
    from hakmem.records import Record, Result
    from hakmem.screen import Console

# Variables and their values.
Pairs = tuple[tuple[str, str], ...]
F = TypeVar("F", bound=Callable[..., object])

QUICK_MINUTES, FULL_MINUTES = 3.0, 45.0
ROUNDS, QUICK_ROUNDS, ROUNDS_MOST = 7, 3, 40
INTERRUPTED = 130


class LazyCommands(click.Group):
    """A group that imports some of its subcommands only when they are called."""

    LAZY = {"batches": "hakmem.bench.batches_command:batches",
            "coherence": "hakmem.bench.coherence_command:coherence",
            "curve": "hakmem.bench.curve_command:curve",
            "diff": "hakmem.bench.diff_command:diff",
            "entries": "hakmem.bench.entries_command:entries",
            "instructions": "hakmem.bench.instructions_command:instructions",
            "report": "hakmem.report.command:report",
            "memory": "hakmem.bench.memory_command:memory",
            "security": "hakmem.bench.security_command:security",
            "show": "hakmem.bench.show_command:show",
            "why": "hakmem.bench.why:why"}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands, sorted."""
        return sorted([*super().list_commands(ctx), *self.LAZY])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a subcommand, and imports it if it is lazy."""
        if cmd_name not in self.LAZY:
            return super().get_command(ctx, cmd_name)
        module, _, function = self.LAZY[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command


def check_pairs(context: click.Context, parameter: click.Parameter, values: Iterable[str]) -> Pairs:
    """Parses each NAME=VALUE of --env (click callback)."""
    return tuple(chosen_allocators.parse_pair(value, "--env", "NAME=VALUE") for value in values)


ALLOCATOR_OPTIONS = [
    click.option("--allocators", callback=split_names, metavar="A,B,...", help="These allocators only."),
    click.option("--all", "everything", is_flag=True,
                 help="Also the hardened peers, which are left out by default."),
    click.option("--add", multiple=True, metavar="NAME=LIBRARY", help="One more allocator: any library to preload."),
    click.option("--setting", multiple=True, metavar="ALLOCATOR:NAME=VALUE", help="A variable for one allocator."),
    click.option("--subject", default="hakmem", show_default=True, metavar="NAME",
                 help="The allocator that is compared with the others."),
    click.option("--env", multiple=True, callback=check_pairs, metavar="NAME=VALUE", help="A variable for every run."),
    click.option("--warm", type=click.IntRange(0, 1 << 20), metavar="MIB",
                 help="Memory to touch before a run, at most. Default: 1024, or a quarter of what is free."),
    click.option("--no-calls", is_flag=True, help="Don't count system calls (saves a run on each allocator)."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--csv", "as_csv", is_flag=True, help="Print the samples as CSV."),
]


def allocator_options(function: F) -> F:
    """Adds ALLOCATOR_OPTIONS to a command."""
    for option in reversed(ALLOCATOR_OPTIONS):
        function = option(function)
    return function


def default_warm(warm: int | None) -> int:
    """Returns the MiB to touch before a run: the option's, or 1024 but at most a quarter of what is free."""
    if warm is not None:
        return warm
    available = machine.memory_available_mib()
    return 1024 if available is None else min(1024, available // 4)


def say(text: str) -> None:
    """Prints a line on standard error."""
    click.echo(f"hakmem: {text}", err=True)


def require_launcher() -> None:
    """Raises a click error if the launcher bench_measure is not built."""
    if not paths.program("bench_measure").is_file():
        raise click.ClickException(paths.absent(paths.program("bench_measure")))


def check_calls() -> bool:
    """Returns whether system calls can be counted, and tells the user if they cannot."""
    if not calls.available():
        say("strace is not installed (Debian package strace): system calls are not counted")
    return calls.available()


def now() -> str:
    """Returns the time as a result file writes it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def print_as(result: Result, as_json: bool, as_csv: bool, print_tables: Callable[[Console, Result], object]) -> None:
    """Prints a result as JSON, CSV or tables."""
    if as_json:
        click.echo(store.to_json(result), nl=False)
    if as_csv:
        click.echo(store.to_csv(result["samples"]), nl=False)
    if not as_json and not as_csv:
        from hakmem.screen import make_console

        print_tables(make_console(), result)


# ---- hakmem bench ----


def runnable_rows(rows: Sequence[Row], files: Path) -> tuple[dict[str, Row], dict[str, str]]:
    """Makes the rows' inputs. Returns {name: Row} of rows that can run and {name: reason} of the others."""
    from hakmem.bench.inputs import InputError
    from hakmem.bench.programs import ProgramError

    able: dict[str, Row] = {}
    unable: dict[str, str] = {}
    for row in rows:
        reason = bench_rows.missing(row)
        if reason is None:
            try:
                bench_rows.prepare(row, files)
            except (InputError, ProgramError, OSError) as error:
                reason = f"its inputs could not be made: {error}"
        if reason is None:
            able[row.name] = row
        else:
            unable[row.name] = reason
            say(f"row {row.name} is left out: {reason}")
    if not able:
        raise click.ClickException("none of the chosen rows can be run here")
    return able, unable


def rows_of(file: Path, patterns: Sequence[str], quick: bool = False) -> list[Row]:
    """Returns the rows of a file, as bench_rows.choose() does; raises a click error if the file is wrong."""
    try:
        return bench_rows.choose(bench_rows.load(file), patterns, quick)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def lock_files(files: Path) -> TextIO:
    """Locks the folder of inputs. Only one run may use it at a time, because two runs disturb each other."""
    files.mkdir(parents=True, exist_ok=True)
    lock = open(files / ".lock", "a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise click.ClickException(
            f"another run is measuring with {files}; two at once would disturb each other") from error
    return lock


def list_rows(rows: Sequence[Row]) -> None:
    """Prints the rows of the tables."""
    from hakmem.bench.table import print_table
    from hakmem.screen import make_console

    print_table(make_console(), "Rows", ["name", "group", "threads", "quick", "about"],
                [[row.name, row.group, str(row.threads), "quick" if row.quick else "", row.about] for row in rows],
                left=(0, 1, 4))


def open_journal(path: Path, header: Record, resume: bool) -> store.Journal:
    """Opens a run's journal; without --resume, moves an unfinished one out of the way."""
    if resume:
        return store.Journal(path)
    if path.exists():
        old = path.with_name(f"{path.name}.old")
        path.replace(old)
        say(f"an unfinished run of this name was there (--resume would go on with it); it is {old} now")
    return store.Journal(path, header)


def budget_minutes(quick: bool, full: bool, minutes: float | None, rounds: int | None) -> float | None:
    """Returns the minutes that a run may take; None if rounds are given and a time is not."""
    if minutes is not None:
        return minutes
    if rounds is not None and not quick and not full:
        return None
    return QUICK_MINUTES if quick else FULL_MINUTES


def writable_results() -> Path:
    """Returns the default folder of results: the checkout's, or one of the user's if that is not writable."""
    from hakmem.bench.keep import state_folder

    folder = paths.results_folder()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if os.access(there, os.W_OK):
        return folder
    own = state_folder() / "results"
    say(f"{there} cannot be written to; the results go to {own} (--out FOLDER takes another)")
    return own


def writable_files() -> Path:
    """Returns the folder of inputs: the build's, or one of the user's if that is not writable."""
    files = paths.build_folder() / "bench-files"
    if os.access(files if files.exists() else files.parent, os.W_OK):
        return files
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hakmem/bench-files"


def finish(result: Result, out: Path, name: str, html: Path | None) -> None:
    """Writes the result's files and tells where they are."""
    stem = store.free_stem(out, result["date"], name)
    written = store.write_result(result, stem)
    page = html or store.beside(stem, ".html")
    with extra("report", "the page of a result"):
        from hakmem.report.page import write_page

    write_page(result, page)
    say("written: " + ", ".join(map(str, [*written, page])))


@click.group("bench", cls=LazyCommands, invoke_without_command=True,
             context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Few rows, 3 minutes.")
@click.option("--full", is_flag=True,
              help="Every row on every peer, 45 minutes. As without an option, but a missing peer is an error.")
@click.option("--time", "minutes", type=Range(0, min_open=True), metavar="MINUTES",
              help="Time that the run may take.")
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="Run exactly N rounds.")
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN", help="Rows whose name matches.")
@click.option("--scale", type=Range(0, min_open=True), default=1.0, metavar="FACTOR",
              help="Multiply the work of the rows that name an amount.")
@click.option("--narrow", type=Range(0), default=3.0, show_default=True, metavar="PERCENT",
              help="Run more rounds of a row until half the interval of its time against its best peer is below this.")
@click.option("--name", help="Name of the result files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Folder of the results. Default: the checkout's bench/results, or one of the user's where that "
                   "cannot be "
                   "written to.")
@click.option("--html", type=FILE, metavar="FILE", help="Write the page to FILE.")
@click.option("--crates", is_flag=True,
              help="Rust programs, built with HAKMEM's crate and with those of other allocators.")
@click.option("--resume", is_flag=True, help="Continue a stopped run that had the same options.")
@click.option("--no-idle", is_flag=True, help="Don't measure the memory of idle programs.")
@click.option("--list", "list_only", is_flag=True, help="List the rows and end.")
@allocator_options
@click.pass_context
def bench(context: click.Context, quick: bool, full: bool, minutes: float | None, rounds: int | None,
          patterns: tuple[str, ...], scale: float, narrow: float, name: str | None, out: Path | None,
          html: Path | None, crates: bool, resume: bool, no_idle: bool, list_only: bool, allocators: list[str],
          everything: bool, add: tuple[str, ...], setting: tuple[str, ...], subject: str, env: Pairs, warm: int | None,
          no_calls: bool, as_json: bool, as_csv: bool) -> None:
    """Measure the allocators side by side on the benchmark programs and on real ones."""
    if context.invoked_subcommand is not None:
        return
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    if crates and (quick or full or add):
        raise click.UsageError("--crates goes with neither --quick, --full nor --add")
    rows = rows_of(bench_rows.CRATES_FILE if crates else bench_rows.FILE, patterns, quick)
    if list_only:
        list_rows(rows)
        return
    name = name or ("quick" if quick else "full" if full else "crates" if crates else "run")
    known: Callable[[], Known] = chosen_allocators.known
    if crates:
        def known() -> Known:
            return chosen_allocators.crates(), None
    chosen = partial(chosen_allocators.choose, allocators, add, setting, subject, everything, need_peers=full,
                     known=known)
    budget = budget_minutes(quick, full, minutes, rounds)
    wishes = Wishes(name=name, subject=subject, rounds_least=rounds or (QUICK_ROUNDS if quick else ROUNDS),
                    rounds_most=rounds or ROUNDS_MOST, minutes=budget, narrow=narrow / 100,
                    calls=None if no_calls else "late" if quick else "early", idle=not quick and not no_idle,
                    scale=scale, env=env, warm=warm)
    result = measure_rows(rows, chosen, wishes, out, html, resume)
    from hakmem.bench.table import print_result

    print_as(result, as_json, as_csv, print_result)


@dataclass(frozen=True)
class Wishes:
    """What a run of rows is asked for. minutes: None to take as long as the rounds need. calls: as in Plan."""

    name: str
    subject: str
    rounds_least: int
    rounds_most: int
    minutes: float | None
    narrow: float = 0.03
    calls: str | None = None
    idle: bool = False
    scale: float = 1.0
    env: Pairs = ()
    warm: int | None = None


def measure_rows(rows: Sequence[Row], choose: Callable[[], Known], wishes: Wishes, out: Path | None, html: Path | None,
                 resume: bool) -> Result:
    """Measures the rows on the allocators that `choose` returns, writes the files and returns the result."""
    require_launcher()
    name, subject = wishes.name, wishes.subject
    if "/" in name or name.startswith("."):
        raise click.UsageError(f"--name {name}: a name of a file is wanted, without a folder")
    chosen, trouble = choose()
    if trouble:
        say(trouble)
    files = writable_files()
    lock = lock_files(files)
    chosen = chosen_allocators.with_copy(chosen, subject, files / "copy")
    able, unable = runnable_rows(rows, files)
    count_calls = wishes.calls is not None and check_calls()
    plan = Plan(rows=tuple(able), allocators=tuple(chosen), subject=subject, copy=chosen_allocators.again(subject),
                rounds_least=wishes.rounds_least, rounds_most=wishes.rounds_most,
                budget_s=None if wishes.minutes is None else wishes.minutes * 60, narrow=wishes.narrow,
                calls=wishes.calls if count_calls else None, warm_mib=default_warm(wishes.warm), idle=wishes.idle)
    conditions = Conditions(files=files, scale=wishes.scale, env=wishes.env)
    header = make_header(
        plan, {row.name: row.describe(wishes.scale) for row in able.values()}, chosen,
        options={"rounds_least": plan.rounds_least, "rounds_most": plan.rounds_most, "minutes": wishes.minutes,
                 "narrow": plan.narrow, "calls": count_calls},
        conditions={"scale": wishes.scale, "env": dict(wishes.env), "warm_mib": plan.warm_mib, "idle": plan.idle},
        command=shlex.join(["hakmem", *sys.argv[1:]]), date=now())
    out = out or writable_results()
    journal_path = out / ".running" / f"{name}.jsonl"
    state = State()
    if resume:
        if not journal_path.exists():
            raise click.ClickException(f"there is no run to resume: {journal_path} is not there")
        header, state = store.resume(journal_path, header)
    try:
        journal = open_journal(journal_path, header, resume)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    measure(plan, able, chosen, conditions, state, journal)
    result = make_result(header, plan, state)
    result["not_run"].update(unable)
    finish(result, out, name, html)
    journal_path.unlink()
    lock.close()
    return result


def measure(plan: Plan, rows: dict[str, Row], allocators: dict[str, Allocator], conditions: Conditions, state: State,
            journal: store.Journal) -> None:
    """Runs the session. If something ends it early, ends the command and says how to go on."""
    again = f"; the same command with --resume goes on (journal {journal.path})"
    try:
        with for_terminal(state.elapsed()) as progress:
            run_session(plan, rows, allocators, conditions, state, journal, progress)
    except KeyboardInterrupt:
        say(f"stopped{again}")
        raise SystemExit(INTERRUPTED) from None
    except RunError as error:
        raise click.ClickException(f"{error}{again}") from error
    finally:
        journal.close()


# ---- Commands with rows of their own ----


@dataclass(frozen=True)
class Grid:
    """The options that all commands with rows of their own have."""

    rounds: int
    name: str
    out: Path | None
    resume: bool
    allocators: list[str]
    everything: bool
    add: tuple[str, ...]
    setting: tuple[str, ...]
    subject: str
    env: Pairs
    warm: int | None
    no_calls: bool
    as_json: bool
    as_csv: bool

    def choose(self) -> Known:
        """Returns {name: Allocator} of those to measure, and what to tell the user."""
        return chosen_allocators.choose(self.allocators, self.add, self.setting, self.subject, self.everything)

    def measure(self, rows: Sequence[Row], print_tables: Callable[[Console, Result], object],
                choose: Callable[[], Known] | None = None, **more: Any) -> None:
        """Measures the rows and prints the result. more: further Wishes."""
        wishes = Wishes(name=self.name, subject=self.subject, rounds_least=self.rounds, rounds_most=self.rounds,
                        minutes=None, env=self.env, warm=self.warm)
        result = measure_rows(rows, choose or self.choose, replace(wishes, **more), self.out, None, self.resume)
        print_as(result, self.as_json, self.as_csv, print_tables)


def grid_options(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that adds the options of a Grid, but for --rounds, to a function that takes a Grid first.
    name: of the result files, unless the user gives another."""
    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            function(Grid(**{field.name: values.pop(field.name) for field in fields(Grid)}), **values)

        command = allocator_options(command)
        for option in (click.option("--resume", is_flag=True,
                                    help="Continue a stopped run that had the same options."),
                       click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
                                    help="Folder of the results, as of hakmem bench."),
                       click.option("--name", default=name, show_default=True, help="Name of the result files.")):
            command = option(command)
        return command

    return decorate
