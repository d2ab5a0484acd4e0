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
from hakmem.paths import COMMAND
from hakmem.version import NAME, version

# {subcommand: "module:function"}. Only the subcommand itself pays for its module's imports (charts, tables).
COMMANDS = {
    "run": "hakmem.run:run",
    "look": "hakmem.look.command:look",
    "heap": "hakmem.heap.command:heap",
    "leaks": "hakmem.leaks.command:leaks",
    "guard": "hakmem.guard.command:guard",
    "analyze": "hakmem.analyze.command:analyze",
    "advise": "hakmem.analyze.command:advise",
    "compare": "hakmem.bench.compare:compare",
    "doctor": "hakmem.doctor.command:doctor",
    "completion": "hakmem.completion:completion",
    "help": "hakmem.cli:help_command",
    "bench": "hakmem.bench.command:bench",
    "peers": "hakmem.peers.command:peers",
    "trace": "hakmem.trace.command:trace",
    "explain": "hakmem.live.command:explain",
    "stats": "hakmem.live.command:stats",
    "map": "hakmem.live.command:map_command",
    "top": "hakmem.top.command:top",
    "ps": "hakmem.ps.command:ps",
    "serve": "hakmem.serve.command:serve",
}
# What `hakmem help` lists, by what a person wants. ./hakmem has the same list (tools/command/pages.sh).
LISTED = {
    "Run": ("run",),
    "Look": ("look",),
    "Find": ("heap", "leaks", "guard"),
    "Decide": ("compare", "analyze", "doctor"),
    "The command": ("completion", "help"),
}
SUMMARY_MOST = 160  # characters of a command's line
# They measure allocators, with what a checkout has. There `hakmem help developer` lists them.
DEVELOPER = ("bench", "peers", "trace")
# Does a part of `hakmem analyze`. Help and completion do not offer it.
ALIAS = "advise"
# {view of `hakmem look`: what it shows}. Each is a command too, which help and completion do not offer.
VIEWS = {
    "explain": "What each resident byte of PID is for.",
    "stats": "Totals, size classes, threads and SuperSlabs of PID.",
    "map": "A drawing of PID's heap, as an HTML file.",
    "top": "A screen that follows PID.",
    "ps": "The processes that run on HAKMEM.",
    "serve": "The figures of processes for browsers and Prometheus.",
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
        """Returns the names of the subcommands that completion offers."""
        hidden = {*VIEWS, ALIAS, *(DEVELOPER if COMMAND == NAME else ())}
        return [*(name for name in COMMANDS if name not in hidden), *checkout_commands()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what LISTED has."""
        for heading, names in LISTED.items():
            self.format_group(ctx, formatter, heading, names)
        formatter.write_text("")
        more = "" if COMMAND == NAME else f"; {NAME} help developer lists the commands for developers of HAKMEM"
        formatter.write_text(f"{NAME} help COMMAND prints the page of a command{more}.")

    def format_group(self, ctx: click.Context, formatter: click.HelpFormatter, heading: str,
                     names: Sequence[str]) -> None:
        """Writes commands under a heading, a line each."""
        widest = max(len(name) for group in (*LISTED.values(), DEVELOPER) for name in group)
        found = [(name, command) for name in names if (command := self.get_command(ctx, name))]
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(widest), command.get_short_help_str(SUMMARY_MOST))
                                for name, command in found])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a subcommand."""
        if cmd_name in DEVELOPER and COMMAND == NAME:
            return None
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
            if args[0] in DEVELOPER:
                raise click.UsageError(f"{args[0]} is a command of HAKMEM's checkout: ./hakmem {args[0]}",
                                       ctx) from error
            import difflib

            alike = difflib.get_close_matches(args[0], [*COMMANDS, *checkout_commands()])
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
    """Goes on in a process that is ended if it is late, if the command is one of WATCHED."""
    # For a server, the address decides how long to wait.
    if words and words[0] in WATCHED and not any("://" in word for word in words):
        from hakmem import apart

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


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND [SUBCOMMAND] | developer]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """List the commands, or print the page of one."""
    if words == ("developer",):
        if COMMAND == NAME:
            raise click.UsageError("what developers of HAKMEM need is in its checkout: ./hakmem help developer", ctx)
        group = ctx.find_root().command
        assert isinstance(group, LazyGroup)
        formatter = ctx.make_formatter()
        group.format_group(ctx, formatter, "For developers of HAKMEM", DEVELOPER)
        click.echo(formatter.getvalue(), nl=False)
        return
    main([*words, "--help"], prog_name=NAME)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="""\b
Exit status: 0 done; 1 failed; 2 the command line is wrong. run, leaks, trace
record and peers run end as PROGRAM does, or with 126 if it cannot be run, 127
if it does not exist.""")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version,
              help="Print HAKMEM's version.")
def main() -> None:
    """The tools of the HAKMEM memory allocator."""
