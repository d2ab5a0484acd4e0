"""The commands `hakmem bench` and `hakmem compare`."""

import datetime
import fcntl
import importlib
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from hakmem import effect, paths
from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import calls, machine, rows as bench_rows, store
from hakmem.bench.progress import for_terminal
from hakmem.bench.runner import Conditions, RunError
from hakmem.bench.schedule import Plan, State
from hakmem.bench.session import make_header, make_result, run_session

QUICK_MINUTES, FULL_MINUTES, COMPARE_MINUTES = 3.0, 45.0, 3.0
ROUNDS, QUICK_ROUNDS, ROUNDS_MOST = 7, 3, 40
INTERRUPTED = 130


class LazyCommands(click.Group):
    """A group, one of whose subcommands is imported only when it is called."""

    LAZY = {"instructions": "hakmem.bench.instructions_command:instructions",
            "report": "hakmem.report.command:report"}

    def list_commands(self, ctx):
        return sorted([*super().list_commands(ctx), *self.LAZY])

    def get_command(self, ctx, cmd_name):
        if cmd_name not in self.LAZY:
            return super().get_command(ctx, cmd_name)
        module, _, function = self.LAZY[cmd_name].partition(":")
        return getattr(importlib.import_module(module), function)


def split_names(context, parameter, value):
    return [name for name in value.split(",") if name] if value else []


def check_pairs(context, parameter, values):
    return tuple(chosen_allocators.parse_pair(value, "--env", "NAME=VALUE") for value in values)


ALLOCATOR_OPTIONS = [
    click.option("--allocators", callback=split_names, metavar="A,B,...", help="These allocators only."),
    click.option("--all", "everything", is_flag=True, help="Also the peers that are left out unless chosen: hardened."),
    click.option("--add", multiple=True, metavar="NAME=LIBRARY", help="One more allocator: any library to preload."),
    click.option("--setting", multiple=True, metavar="ALLOCATOR:NAME=VALUE", help="A variable for one allocator."),
    click.option("--subject", default="hakmem", show_default=True, metavar="NAME",
                 help="The allocator that is compared with the others."),
    click.option("--env", multiple=True, callback=check_pairs, metavar="NAME=VALUE", help="A variable for every run."),
    click.option("--warm", type=click.IntRange(0, 1 << 20), metavar="MIB",
                 help="Memory to touch before a run, at most. Default: 1024, or a quarter of what is free."),
    click.option("--no-calls", is_flag=True, help="Don't count system calls (a run more on each allocator)."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--csv", "as_csv", is_flag=True, help="Print the samples as CSV."),
]


def allocator_options(function):
    for option in reversed(ALLOCATOR_OPTIONS):
        function = option(function)
    return function


def default_warm(warm):
    if warm is not None:
        return warm
    available = machine.memory_available_mib()
    return 1024 if available is None else min(1024, available // 4)


def say(text):
    click.echo(f"hakmem: {text}", err=True)


def require_launcher():
    if not paths.program("bench_measure").is_file():
        raise click.ClickException(f"{paths.program('bench_measure')} is not there; ./hakmem build builds it")


def check_calls(no_calls):
    """Whether system calls are counted; it is said when they cannot be."""
    if not no_calls and not calls.available():
        say("strace is not installed (Debian package strace): system calls are not counted")
    return not no_calls and calls.available()


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def print_as(result, as_json, as_csv, print_tables):
    if as_json:
        click.echo(store.to_json(result), nl=False)
    if as_csv:
        click.echo(store.to_csv(result["samples"]), nl=False)
    if not as_json and not as_csv:
        from hakmem.bench.table import make_console

        print_tables(make_console(), result)


# ---- hakmem bench ----


def runnable_rows(rows, files):
    """{name: Row} of those that can be run here, with their inputs made, and {name: reason} of the others."""
    from hakmem.bench.inputs import InputError
    from hakmem.bench.programs import ProgramError

    able, unable = {}, {}
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


def lock_files(files):
    """The folder of inputs is one run's at a time, and so should the machine be."""
    files.mkdir(parents=True, exist_ok=True)
    lock = open(files / ".lock", "a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise click.ClickException(f"another run is measuring with {files}; two at once disturb each other") from error
    return lock


def list_rows(rows):
    from hakmem.bench.table import make_console, print_table

    print_table(make_console(), "Rows", ["name", "group", "threads", "quick", "about"],
                [[row.name, row.group, str(row.threads), "quick" if row.quick else "", row.about] for row in rows],
                left=(0, 1, 4))


def open_journal(path, header, resume):
    if resume:
        return store.Journal(path)
    if path.exists():
        old = path.with_name(f"{path.name}.old")
        path.replace(old)
        say(f"an unfinished run of this name was there (--resume would go on with it); it is {old} now")
    return store.Journal(path, header)


def budget_minutes(quick, full, minutes, rounds):
    """The time a run may take; none when the rounds are given and the time is not."""
    if minutes is not None:
        return minutes
    if rounds is not None and not quick and not full:
        return None
    return QUICK_MINUTES if quick else FULL_MINUTES


def finish(result, out, name, html):
    """Writes the result's files and says where."""
    stem = store.free_stem(out, result["date"], name)
    written = [store.write_result(result, stem), store.beside(stem, ".csv")]
    page = html or store.beside(stem, ".html")
    from hakmem.report.page import write_page

    write_page(result, page)
    say("written: " + ", ".join(map(str, [*written, page])))


@click.group("bench", cls=LazyCommands, invoke_without_command=True,
             context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Few rows, 3 minutes.")
@click.option("--full", is_flag=True,
              help="Every row on every peer, 45 minutes: as without it, but the peers must be there.")
@click.option("--time", "minutes", type=click.FloatRange(0, min_open=True), metavar="MINUTES",
              help="Time that the run may take.")
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="Exactly so many rounds.")
@click.option("--rows", "patterns", multiple=True, metavar="PATTERN", help="Rows whose name matches.")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=1.0, metavar="FACTOR",
              help="Factor on the amount of work of the rows that name one.")
@click.option("--narrow", type=click.FloatRange(0), default=3.0, show_default=True, metavar="PERCENT",
              help="How well a row's time against its best peer is to be known (half the interval).")
@click.option("--name", help="Name of the result files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Folder of the results.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the page here.")
@click.option("--resume", is_flag=True, help="Go on with a run of the same options that was stopped.")
@click.option("--no-idle", is_flag=True, help="Don't measure the memory of idle programs.")
@click.option("--list", "list_only", is_flag=True, help="List the rows and end.")
@allocator_options
@click.pass_context
def bench(context, quick, full, minutes, rounds, patterns, scale, narrow, name, out, html, resume, no_idle, list_only,
          allocators, everything, add, setting, subject, env, warm, no_calls, as_json, as_csv):
    """Measure the allocators side by side on the benchmark programs and on real ones."""
    if context.invoked_subcommand is not None:
        return
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    try:
        rows = bench_rows.choose(bench_rows.load(), patterns, quick)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if list_only:
        list_rows(rows)
        return
    require_launcher()
    name = name or ("quick" if quick else "full" if full else "run")
    if "/" in name or name.startswith("."):
        raise click.UsageError(f"--name {name}: a name of a file is wanted, without a folder")
    chosen, trouble = chosen_allocators.choose(allocators, add, setting, subject, everything, need_peers=full)
    if trouble:
        say(trouble)
    files = paths.build_folder() / "bench-files"
    lock = lock_files(files)
    chosen = chosen_allocators.with_copy(chosen, subject, files / "copy")
    able, unable = runnable_rows(rows, files)
    count_calls = check_calls(no_calls)
    budget = budget_minutes(quick, full, minutes, rounds)
    plan = Plan(rows=tuple(able), allocators=tuple(chosen), subject=subject, copy=chosen_allocators.again(subject),
                rounds_least=rounds or (QUICK_ROUNDS if quick else ROUNDS), rounds_most=rounds or ROUNDS_MOST,
                budget_s=None if budget is None else budget * 60, narrow=narrow / 100,
                calls=("late" if quick else "early") if count_calls else None, warm_mib=default_warm(warm),
                idle=not quick and not no_idle)
    conditions = Conditions(files=files, scale=scale, env=env)
    header = make_header(
        plan, {row.name: row.describe(scale) for row in able.values()}, chosen,
        options={"rounds_least": plan.rounds_least, "rounds_most": plan.rounds_most, "minutes": budget,
                 "narrow": plan.narrow, "calls": count_calls},
        conditions={"scale": scale, "env": dict(env), "warm_mib": plan.warm_mib, "idle": plan.idle},
        command=shlex.join(["hakmem", *sys.argv[1:]]), date=now())
    out = out or paths.results_folder()
    journal_path = out / ".running" / f"{name}.jsonl"
    state = State()
    if resume:
        if not journal_path.exists():
            raise click.ClickException(f"there is no run to resume: {journal_path} is not there")
        then, state = store.read_journal(journal_path)
        store.check_header(journal_path, then, header)
        header = {**header, "date": then["date"], "command": then["command"], "load_before": then["load_before"]}
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
    from hakmem.bench.table import print_result

    print_as(result, as_json, as_csv, print_result)


def measure(plan, rows, allocators, conditions, state, journal):
    """Runs the session; what ends it early ends the command, and says how to go on where that is possible."""
    resumable = isinstance(journal, store.Journal)
    again = f"; the same command with --resume goes on (journal {journal.path})" if resumable else ""
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


@bench.command("show")
@click.argument("file", type=click.Path(path_type=Path), metavar="RESULT.json")
@click.option("--csv", "as_csv", is_flag=True, help="Print the samples as CSV.")
def show(file, as_csv):
    """Print the tables of a result again."""
    from hakmem.bench.table import print_result
    from hakmem.report.result import ResultError, load_result

    try:
        result = load_result(file)
    except ResultError as error:
        raise click.ClickException(str(error)) from error
    print_as(result, False, as_csv, print_result)


# ---- hakmem compare ----


class NoJournal:
    """A comparison is short: it is not resumed."""

    def write(self, kind, value):
        pass

    def close(self):
        pass


def find_program(word):
    path = shutil.which(word)
    if path is None:
        why = "is not a program that can be run" if "/" in word and os.path.exists(word) else "not found"
        raise click.ClickException(f"program '{word}' {why}")
    if why := effect.obstacle(path, paths.hakmem_library()):
        raise click.ClickException(f"nothing can be compared: {why}")
    return path


def first_failure(samples):
    """How the first run failed, and what to do where the program itself seems to mean it."""
    failed = next((sample for sample in samples if sample["status"] != "ok"), None)
    if failed is None:
        return ""
    told = f"; on {failed['allocator']} it ended so: {failed['detail']}"
    if failed["status"] == "failed":
        told += f"\nIf that is how it should end, say so with --status {failed['exit']}."
    return told


@click.command("compare", context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option("--rounds", type=click.IntRange(1), metavar="N",
              help="Exactly so many rounds. Default: 7 within 3 minutes.")
@click.option("--time", "minutes", type=click.FloatRange(0, min_open=True), metavar="MINUTES",
              help="As many rounds as fit into this time.")
@click.option("--input", "input_file", type=click.Path(exists=True, dir_okay=False, readable=True), metavar="FILE",
              help="Standard input of the program. Default: /dev/null.")
@click.option("--show-output", is_flag=True, help="Let the program's output through.")
@click.option("--limit", type=click.FloatRange(0, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
              help="Time after which a run is ended.")
@click.option("--status", "exit_status", type=click.IntRange(0, 255), default=0, show_default=True, metavar="N",
              help="The exit status that PROGRAM ends with when all is well.")
@allocator_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENTS]")
def compare(rounds, minutes, input_file, show_output, limit, exit_status, allocators, everything, add, setting, subject, env, warm,
            no_calls, as_json, as_csv, command):
    """Measure PROGRAM on each allocator: time, CPU time, memory, faults and system calls.

    An allocator on which a run of PROGRAM fails has its status in the table and no figures. It is an error when none is
    left."""
    require_launcher()
    find_program(command[0])
    chosen, trouble = chosen_allocators.choose(allocators, add, setting, subject, everything)
    if trouble:
        say(trouble)
    row = bench_rows.Row(name="program", group="program", threads=0, about="", command=command, figure="wall",
                         time_limit_s=limit, verbatim=True)
    count_calls = check_calls(no_calls)
    budget = minutes if minutes is not None else None if rounds else COMPARE_MINUTES
    with tempfile.TemporaryDirectory(prefix="hakmem-compare-") as folder:
        chosen = chosen_allocators.with_copy(chosen, subject, folder)
        plan = Plan(rows=(row.name,), allocators=tuple(chosen), subject=subject, copy=chosen_allocators.again(subject),
                    rounds_least=rounds or ROUNDS, rounds_most=rounds or (ROUNDS_MOST if minutes else ROUNDS),
                    budget_s=None if budget is None else budget * 60, narrow=0.0 if minutes else 0.03,
                    calls="early" if count_calls else None, warm_mib=default_warm(warm),
                    exit_status=exit_status)
        conditions = Conditions(files=Path(folder), env=env, own_environment=True, show_output=show_output,
                                input=input_file)
        described = {**row.describe(), "threads": None, "command": shlex.join(command)}
        header = make_header(plan, {row.name: described}, chosen, options={"rounds": rounds, "minutes": budget},
                             conditions={"env": dict(env), "input": input_file}, date=now(),
                             command=shlex.join(["hakmem", *sys.argv[1:]]))
        state = State()
        measure(plan, {row.name: row}, chosen, conditions, state, NoJournal())
    result = make_result(header, plan, state)
    from hakmem.bench.comparison import print_comparison

    print_as(result, as_json, as_csv, print_comparison)
    if not any(entry["status"] == "ok" for entry in result["summary"]["rows"].get(row.name, {}).values()):
        raise click.ClickException(f"no allocator completed its runs of {command[0]}{first_failure(state.samples)}")
