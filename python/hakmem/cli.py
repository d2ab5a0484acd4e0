"""The command line. Each subcommand is a module that is imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from hakmem import streams
from hakmem.clean import clean_lines
from hakmem.version import NAME, version

# {subcommand: "module:function"}. Only the subcommand itself pays for its module's imports (charts, tables).
COMMANDS = {
    "serve": "hakmem.serve.command:serve",
    "stats": "hakmem.live.command:stats",
    "explain": "hakmem.live.command:explain",
    "map": "hakmem.live.command:map_command",
    "advise": "hakmem.analyze.command:advise",
    "analyze": "hakmem.analyze.command:analyze",
    "bench": "hakmem.bench.command:bench",
    "compare": "hakmem.bench.compare:compare",
    "completion": "hakmem.completion:completion",
    "guard": "hakmem.guard.command:guard",
    "heap": "hakmem.heap.command:heap",
    "help": "hakmem.cli:help_command",
    "doctor": "hakmem.doctor.command:doctor",
    "leaks": "hakmem.leaks.command:leaks",
    "peers": "hakmem.peers.command:peers",
    "ps": "hakmem.ps.command:ps",
    "run": "hakmem.run:run",
    "top": "hakmem.top.command:top",
    "trace": "hakmem.trace.command:trace",
}


# {command that looks at a process once: its time limit in seconds}. The process's owner can keep its readers waiting.
WATCHED = {"stats": 120, "explain": 120, "map": 120, "doctor": 120, "heap": 900}
# Limit of their address space in bytes. `doctor` and `heap` have none, because they start programs.
SPACE_MOST = 8 << 30
BOUND = ("stats", "explain", "map")


def checkout_commands() -> dict[str, click.Command]:
    """Returns ./hakmem's own commands, while it asks for what a shell completes."""
    if not os.environ.get("HAKMEM_CHECKOUT"):
        return {}
    from hakmem.completion import CHECKOUT_COMMANDS

    return CHECKOUT_COMMANDS


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands, sorted."""
        return sorted({**COMMANDS, **checkout_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a subcommand."""
        if cmd_name not in COMMANDS:
            return checkout_commands().get(cmd_name)
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def resolve_command(
            self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand of a command line. The error for a wrong one names those that are spelled alike."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            alike = difflib.get_close_matches(args[0], self.list_commands(ctx))
            if not alike or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(alike)}?", ctx) from error

    def main(self, *args: Any, **others: Any) -> Any:
        """Runs the command line. Standard output that cannot be written is an error like others."""
        streams.prepare()
        try:
            return super().main(*args, **others)
        except OSError as error:
            if not streams.output_failed(error):
                raise
            click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. Cleans the text of an error."""
        words = [*(getattr(ctx, "_protected_args", None) or ()), *ctx.args]
        if words and words[0] in WATCHED:
            watch(words)
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            # Much of a message may come from others: names, paths, texts from files.
            text = clean_lines(error.format_message())
            if text == error.format_message():
                raise
            raise click.UsageError(text, error.ctx) if isinstance(
                error, click.UsageError) else click.ClickException(text)


def watch(words: Sequence[str]) -> None:
    """Goes on in a process that is ended if it is late."""
    from hakmem import apart

    # For a server, the address decides how long to wait.
    if not any("://" in word for word in words):
        seconds = WATCHED[words[0]]
        apart.watched(seconds,
                      f"no end after {seconds} seconds: the process keeps its readers waiting, or is very large")
        if words[0] in BOUND:
            apart.bound_space(SPACE_MOST)


def print_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Prints the version (click callback)."""
    if wanted:
        click.echo(f"hakmem {version()}")
        ctx.exit()


@click.command("help", add_help_option=False)
@click.argument("words", nargs=-1, metavar="[COMMAND [SUBCOMMAND]]")
def help_command(words: tuple[str, ...]) -> None:
    """List the commands, or print the page of one."""
    main([*words, "--help"], prog_name=NAME)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="""\b
Exit status: 0 done; 1 failed; 2 the command line is wrong. run, leaks, trace
record and peers run end as PROGRAM does, or with 126 if it cannot be run, 127
if it does not exist.""")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version,
              help="Print HAKMEM's version.")
def main() -> None:
    """The tools of the HAKMEM memory allocator."""
