"""`hakmem run`: runs a program on HAKMEM. ./hakmem run does the same, after it has built the library. Both start
hakmem-run, which has the rules. This module adds what examines a program at its end (watched.py)."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hakmem import starter
from hakmem.budget import is_exact, parse_bounds
from hakmem.completion import complete_program
from hakmem.limits import in_own_terms
from hakmem.parameters import File


def refuse_unwritable(file: str | Path, option: str) -> None:
    """Raises a click error if an option's output file cannot be written."""
    file = Path(os.path.abspath(file))
    try:
        there = file.parent.is_dir()
    except PermissionError:
        there = True  # a folder that may not be looked into; the check below says so
    if not there:
        raise click.BadParameter(f"{file}: there is no folder {file.parent}", param_hint=option)
    if not os.access(file.parent, os.X_OK):
        raise click.BadParameter(f"{file}: {file.parent} cannot be looked into", param_hint=option)
    if file.is_dir():
        raise click.BadParameter(f"{file} is a folder", param_hint=option)
    if not os.access(file.parent, os.W_OK):
        raise click.BadParameter(f"{file}: {file.parent} cannot be written to", param_hint=option)
    if file.exists() and not os.access(file, os.W_OK):
        raise click.BadParameter(f"{file} cannot be written to", param_hint=option)


class RunCommand(click.Command):
    """Leaves the words to hakmem-run. The options are for the page and for a shell that completes a line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keeps the words as they are."""
        if ctx.resilient_parsing or args[:1] in (["--help"], ["-h"]):
            # The word after --stats is never its value.
            return super().parse_args(ctx, ["--stats=text" if word == "--stats" else word for word in args])
        ctx.params["words"] = args
        return []


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": False})
@click.option("--stats", type=click.Choice(["text", "json"]), help="Print statistics at the end. Default: as text.")
@click.option("--profile", is_flag=True, help="Print a cycle profile at the end.")
@click.option("--secure", is_flag=True, help="Use the hardened library, libhakmem-secure.so.")
@click.option("--heap-profile", metavar="FILE", help="Write a heap profile at the end, for pprof and `hakmem heap`.")
@click.option("--budget", metavar="FIGURE=MOST,...",
              help="Fail if PROGRAM takes more: peak, heap, allocations, allocated, inuse, leaked.")
@click.option("--markdown", type=File(dir_okay=False), metavar="FILE",
              help="Append the budget's figures to FILE. Default: the file that GITHUB_STEP_SUMMARY names.")
@click.option("--set", multiple=True, metavar="NAME=VALUE",
              help="Set an option of the library, with or without HAKMEM_ before its name.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGUMENTS]...",
                shell_complete=complete_program)
@click.pass_context
def run(ctx: click.Context, words: list[str]) -> None:
    """Run PROGRAM with HAKMEM in place of its malloc. The exit status is PROGRAM's, or 1 if that is 0 and PROGRAM is
    above its budget.

    If HAKMEM cannot take effect (in a static or set-user-id program, or one for another machine), a line on standard
    error says so, and PROGRAM runs without it."""
    plan = starter.plan(words)
    bounds = parse_bounds(plan.budget) if plan.budget else ()
    if plan.markdown:
        refuse_unwritable(plan.markdown, "--markdown")
    if is_exact(bounds):
        plan.environment["HAKMEM_RECORD_ALL"] = "1"
    if bounds or (plan.profile and not plan.why):
        from hakmem import watched

        watched.run(ctx, plan.program, plan, bounds)
    in_own_terms()
    os.execve(plan.command[0], plan.command, plan.environment)
