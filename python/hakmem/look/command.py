"""The command `hakmem look`. Its views are commands: it chooses one by the command line, and that one does the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from hakmem.cli import VIEWS, watch
from hakmem.processes import ProcessParameter

HELP = {"-h", "--help"}


def options_in(words: Sequence[str]) -> list[str]:
    """Returns the names of the options in a command line, as far as -- ends them."""
    end = words.index("--") if "--" in words else len(words)
    return [word.partition("=")[0] if word.startswith("--") else word[:2]
            for word in words[:end] if word.startswith("-") and word != "-"]


def named_view(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the view that the command line names, and the words without its name."""
    named = sorted({option for option in options_in(words) if option.removeprefix("--") in VIEWS})
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other")
    end = words.index("--") if "--" in words else len(words)
    rest = [word for word in words[:end] if word not in named]
    return (named[0].removeprefix("--") if named else None), [*rest, *words[end:]]


def preferred(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the views in the order in which they are tried. A screen that goes on needs a terminal."""
    if all(word.startswith("-") for word in words):
        return ("ps", "top", "explain", "stats", "map", "serve")
    if sys.stdin.isatty() and sys.stdout.isatty():
        return ("top", "explain", "stats", "map", "serve", "ps")
    return ("explain", "stats", "map", "top", "serve", "ps")


def knows(command: click.Command, options: Iterable[str]) -> bool:
    """Returns whether a command has all these options."""
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return known.issuperset(options)


class Look(click.Command):
    """Becomes the command of its view as soon as it has read which one is meant."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """Returns the view's context; the command's own if its page or a completion before the view is wanted."""
        group = parent.command if parent else None
        completes = extra.get("resilient_parsing", False)
        view, words = named_view(args)
        options = [option for option in options_in(words) if option not in HELP]
        if not isinstance(group, click.Group) or view is None and (completes or not options and HELP & {*words}):
            return super().make_context(info_name, args, parent, **extra)
        assert parent
        if view is None:
            order = preferred(words)
            view = next((each for each in order if not options or knows(command_of(group, parent, each), options)),
                        order[0])
        if not completes:
            watch([view, *words])
        return command_of(group, parent, view).make_context(f"{info_name} --{view}", words, parent, **extra)


def command_of(group: click.Group, context: click.Context, view: str) -> click.Command:
    """Returns the command that is a view."""
    command = group.get_command(context, view)
    assert command
    return command


@click.command(cls=Look, params=[
    *(click.Option([f"--{name}"], is_flag=True, help=about) for name, about in VIEWS.items()),
    click.Argument(["pid"], type=ProcessParameter(), required=False, metavar="[PID|NAME]")],
    options_metavar="[--VIEW] [OPTIONS OF THE VIEW]", epilog="""\b
'hakmem look --VIEW --help' prints the options of a view. Each view is also a
command: 'hakmem stats PID' does what 'hakmem look PID --stats' does.""")
def look(**_: object) -> None:
    """Look at the memory of processes that run on HAKMEM.

    Without PID, the command lists them. With PID, it watches the process on a terminal; elsewhere it says what each
    resident byte is for. --VIEW asks for another view. So does an option that only another view has: --once, for
    example, prints one screen of the live view."""
    raise AssertionError("make_context always takes a view")
