"""The command `hakmem compare`, and what `hakmem advise` has in common with it: runs of one program, side by side."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from hakmem import paths, starter
from hakmem.bench import allocators as chosen_allocators
from hakmem.bench import rows as bench_rows
from hakmem.bench import store
from hakmem.bench.command import (
    INTERRUPTED, ROUNDS, ROUNDS_MOST, Pairs, allocator_options, check_calls, default_warm, now, print_as,
    require_launcher, say)
from hakmem.bench.installed import KNOWN, how_to_get
from hakmem.bench.keep import Keeping, keep
from hakmem.bench.progress import for_terminal
from hakmem.bench.runner import Conditions, RunError
from hakmem.bench.schedule import Plan, State
from hakmem.bench.session import make_header, make_result, run_session
from hakmem.completion import complete_program
from hakmem.parameters import Range
from hakmem.phrases import plural

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.records import Record, Result, Sample

MINUTES = 3.0
ROW = "program"


def find_program(word: str) -> str:
    """Returns the path of the program; raises a click error if it cannot be run or compared."""
    path = shutil.which(word)
    if path is None:
        why = "is not a program that can be run" if "/" in word and os.path.exists(word) else "not found"
        raise click.ClickException(f"program '{word}' {why}")
    if obstacle := starter.obstacle(path, paths.hakmem_library()):
        raise click.ClickException(f"nothing can be compared: {obstacle}")
    return path


def first_failure(samples: Iterable[Sample]) -> str:
    """Returns how the first failed run ended, and a hint if the program may always end like that."""
    failed = next((sample for sample in samples if sample["status"] != "ok"), None)
    if failed is None:
        return ""
    told = f"; on {failed['allocator']} it ended so: {failed['detail']}"
    if failed["status"] == "failed":
        told += f"\nIf that is how it should end, say so with --status {failed['exit']}."
    return told


def other_allocators(found: dict[str, Allocator]) -> str:
    """Returns a sentence about how to get allocators that are missing."""
    absent = [name for name, known in KNOWN.items() if name not in found and not set(known.peers) & set(found)]
    ways = []
    if absent and (command := how_to_get(absent)):
        ways.append(f"{command} adds {', '.join(absent)}")
    if (paths.CHECKOUT / "bench/peers").is_dir():
        ways.append("hakmem peers build makes more from their sources")
    ways.append("--add NAME=LIBRARY takes any other")
    return "; ".join(ways)


def tell_allocators(found: dict[str, Allocator]) -> None:
    """Tells which allocators are compared and how to get more."""
    told = ", ".join(f"{name} {allocator.version.replace(name, '').strip()}".strip()
                     for name, allocator in found.items())
    say(f"compared are {told}")
    say(other_allocators(found))


def program_row(command: tuple[str, ...], limit: float) -> bench_rows.Row:
    """Returns the row that runs the user's command."""
    return bench_rows.Row(name=ROW, group=ROW, threads=0, about="", command=command, figure="wall", time_limit_s=limit,
                          verbatim=True)


@contextmanager
def journal_of(keeping: Keeping, header: Record, resume: bool) -> Iterator[tuple[store.Journal, Record, State]]:
    """Returns (journal, header, State) of a new or resumed run."""
    state = State()
    if resume:
        if keeping.why:
            raise click.ClickException(f"no run can be resumed: {keeping.why}")
        if not keeping.journal.exists():
            raise click.ClickException(
                f"there is no run of this command to resume in {os.getcwd()}: it came to its end, "
                f"or was started elsewhere or with other words")
        header, state = store.resume(keeping.journal, header)
    elif keeping.journal.exists():
        say("a run of this command that was stopped is forgotten now; --resume would have gone on with it")
    journal = store.Journal(keeping.journal, None if resume else header)
    try:
        yield journal, header, state
    finally:
        journal.close()


def run_program(plan: Plan, row: bench_rows.Row, allocators: dict[str, Allocator], conditions: Conditions,
                header: Record, keeping: Keeping, resume: bool) -> tuple[Result, bool, list[Sample]]:
    """Returns (result, whether the run was completed, samples). After Ctrl-C, the finished blocks count."""
    with journal_of(keeping, header, resume) as (journal, header, state):
        again = f": {keeping.why}" if keeping.why else "; the same command with --resume goes on"
        whole = True
        try:
            with for_terminal(state.elapsed()) as progress:
                run_session(plan, {row.name: row}, allocators, conditions, state, journal, progress)
        except KeyboardInterrupt:
            whole = False
            say(f"stopped after {plural(state.rounds(row.name), 'whole round')}"
                + (f", and cannot be resumed{again}" if keeping.why else again))
        except RunError as error:
            raise click.ClickException(f"{error}{'' if keeping.why else again}") from error
    if whole:
        keeping.journal.unlink()
    return make_result(header, plan, state), whole, state.samples


@click.command("compare", context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option("--rounds", type=click.IntRange(1), metavar="N",
              help="Run exactly N rounds. Default: 7 within 3 minutes.")
@click.option("--time", "minutes", type=Range(0, min_open=True), metavar="MINUTES",
              help="As many rounds as fit into this time.")
@click.option("--input", "input_file", type=click.Path(exists=True, dir_okay=False, readable=True), metavar="FILE",
              help="Standard input of the program. Default: /dev/null.")
@click.option("--show-output", is_flag=True, help="Let the program's output through.")
@click.option("--limit", type=Range(0, min_open=True), default=600.0, show_default=True, metavar="SECONDS",
              help="Time after which a run is ended.")
@click.option("--status", "exit_status", type=click.IntRange(0, 255), default=0, show_default=True, metavar="N",
              help="The exit status of a good run of PROGRAM.")
@click.option("--resume", is_flag=True, help="Continue a stopped comparison of the same command.")
@allocator_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENTS]",
                shell_complete=complete_program)
def compare(rounds: int | None, minutes: float | None, input_file: str | None, show_output: bool, limit: float,
            exit_status: int, resume: bool, allocators: list[str], everything: bool, add: tuple[str, ...],
            setting: tuple[str, ...], subject: str, env: Pairs, warm: int | None, no_calls: bool, as_json: bool,
            as_csv: bool, command: tuple[str, ...]) -> None:
    """Measure PROGRAM on each allocator: time, CPU time, memory, faults and system calls.

    The allocators are the system's, HAKMEM, those that are installed as libraries, and those that hakmem peers has
    built. The last two sentences are the verdict. Ctrl-C prints what the rounds so far allow, and --resume goes on.

    If a run of PROGRAM fails on an allocator, the table shows the status in place of figures. If it fails on all, the
    command ends with 1."""
    require_launcher()
    find_program(command[0])
    chosen, trouble = chosen_allocators.choose(allocators, add, setting, subject, everything,
                                               known=partial(chosen_allocators.known, installed=True))
    if trouble:
        say(trouble)
    if not allocators:
        tell_allocators(chosen)
    row = program_row(command, limit)
    count_calls = not no_calls and check_calls()
    budget = minutes if minutes is not None else None if rounds else MINUTES
    with keep("compare", command) as keeping:
        chosen = chosen_allocators.with_copy(chosen, subject, keeping.folder)
        plan = Plan(rows=(row.name,), allocators=tuple(chosen), subject=subject, copy=chosen_allocators.again(subject),
                    rounds_least=rounds or ROUNDS, rounds_most=rounds or (ROUNDS_MOST if minutes else ROUNDS),
                    budget_s=None if budget is None else budget * 60, narrow=0.0 if minutes else 0.03,
                    calls="early" if count_calls else None, warm_mib=default_warm(warm),
                    exit_status=exit_status)
        conditions = Conditions(files=keeping.folder, env=env, own_environment=True, show_output=show_output,
                                input=input_file)
        described = {**row.describe(), "threads": None, "command": shlex.join(command)}
        header = make_header(plan, {row.name: described}, chosen, options={"rounds": rounds, "minutes": budget},
                             conditions={"env": dict(env), "input": input_file, "status": exit_status}, date=now(),
                             command=shlex.join(["hakmem", *sys.argv[1:]]))
        result, whole, samples = run_program(plan, row, chosen, conditions, header, keeping, resume)
    if not whole and not result["rows"]:
        raise SystemExit(INTERRUPTED)
    from hakmem.bench.comparison import print_comparison
    from hakmem.bench.verdict import verdict

    result["verdict"] = verdict(result, row.name)
    print_as(result, as_json, as_csv, print_comparison)
    if not whole:
        raise SystemExit(INTERRUPTED)
    if not any(entry["status"] == "ok" for entry in result["summary"]["rows"].get(row.name, {}).values()):
        raise click.ClickException(f"no allocator completed its runs of {command[0]}{first_failure(samples)}")
