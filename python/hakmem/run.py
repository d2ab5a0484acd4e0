"""`hakmem run`: runs a program on HAKMEM. ./hakmem run is the same and builds the library first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import click

from hakmem import effect, paths
from hakmem.budget import Bound, Budget, is_exact
from hakmem.completion import complete_program
from hakmem.library import known_options
from hakmem.limits import in_own_terms

NOT_EXECUTABLE, NOT_FOUND = 126, 127
# Variables of these tools, which the library would take for misspelled options.
TOOLS_OWN = ("HAKMEM_BUILD_DIR", "HAKMEM_PEERS_DIR")


def parse_setting(text: str, known: set[str], option: str = "--set") -> tuple[str, str]:
    """Returns (variable, value) of an option's NAME=VALUE. NAME may lack HAKMEM_ and be in either case."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text}: NAME=VALUE is wanted", param_hint=option)
    name = "HAKMEM_" + name.upper().removeprefix("HAKMEM_")
    if name not in known:
        raise click.BadParameter(f"{text}: there is no option {name}; docs/options.md lists them", param_hint=option)
    return name, value


def check_profile(file: str) -> str:
    """Returns the absolute path of a profile to write. The program may have changed its folder when it ends."""
    return str(refuse_unwritable(file, "--heap-profile"))


def refuse_unwritable(file: str | Path, option: str) -> Path:
    """Returns the absolute path of an option's output file; raises a click error if it cannot be written."""
    file = Path(os.path.abspath(file))
    try:
        there = file.parent.is_dir()
    except PermissionError:
        there = True  # it cannot be told
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
    return file


def unfit(name: str) -> tuple[int, str] | None:
    """Returns (exit status, what is wrong), as shells do, if a program is missing or cannot be run; else None."""
    if shutil.which(name) is not None:
        return None
    if "/" in name and os.path.isdir(name):
        return NOT_EXECUTABLE, "is a folder"
    if "/" in name and os.path.exists(name):
        return NOT_EXECUTABLE, "is not executable"
    return NOT_FOUND, "not found"


def refuse_unfit(ctx: click.Context, name: str) -> None:
    """Ends the command as a shell does if the program is missing or cannot be run."""
    if wrong := unfit(name):
        status, words = wrong
        click.echo(f"hakmem: program '{name}' {words}", err=True)
        ctx.exit(status)


def preload(library: Path) -> str:
    """Returns LD_PRELOAD's value, with the library before what is there."""
    if any(character.isspace() or character == ":" for character in str(library)):
        raise click.ClickException(f"LD_PRELOAD cannot name {library}: there is a blank or a colon in it")
    before = os.environ.get("LD_PRELOAD")
    return f"{library}:{before}" if before else str(library)


class RunCommand(click.Command):
    """Takes --stats alone as --stats=text: the word after it is never its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words."""
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "--stats":
                args[at] = "--stats=text"
            at += 2 if args[at] in ("--set", "--heap-profile", "--budget", "--markdown") else 1
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": False})
@click.option("--stats", type=click.Choice(["text", "json"]), help="Print statistics at the end; text if not said.")
@click.option("--profile", is_flag=True, help="Print a cycle profile at the end.")
@click.option("--secure", is_flag=True, help="Use the hardened library, libhakmem-secure.so.")
@click.option("--heap-profile", metavar="FILE", help="Write a heap profile at the end, for pprof and `hakmem heap`.")
@click.option("--budget", "bounds", type=Budget(), metavar="FIGURE=MOST,...",
              help="Fail where PROGRAM takes more: peak, heap, allocations, allocated, inuse, leaked.")
@click.option("--markdown", "summary", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Append the budget's figures to FILE; without it, to the summary of a job of GitHub Actions.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Any option of the library, with or without HAKMEM_ before it.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGUMENTS]...",
                shell_complete=complete_program)
@click.pass_context
def run(ctx: click.Context, stats: str | None, profile: bool, secure: bool, heap_profile: str | None,
        bounds: tuple[Bound, ...] | None, summary: Path | None, settings: tuple[str, ...],
        command: tuple[str, ...]) -> None:
    """Run PROGRAM with HAKMEM in place of its malloc. Its exit status is kept; where that is 0 and a budget is not, it
    is 1.

    Where HAKMEM cannot take effect (a static or set-user-id program, one for another machine), a line on standard error
    says so, and the program runs without it."""
    if summary and not bounds:
        raise click.UsageError("--markdown is for --budget")
    if profile and secure:
        raise click.UsageError("--profile and --secure exclude each other: the hardened library has no cycle profile")
    library = paths.cycles_library() if profile else paths.secure_library() if secure else paths.hakmem_library()
    if not library.is_file():
        raise click.ClickException(paths.absent(library, "cycles " if profile else ""))
    environment = {name: value for name, value in os.environ.items() if name not in TOOLS_OWN}
    if stats:
        environment["HAKMEM_SHOW_STATS"] = "json" if stats == "json" else "1"
    if profile:
        environment["HAKMEM_TINY_PROFILE"] = "1"
    if heap_profile is not None:
        environment["HAKMEM_HEAP_PROFILE"] = check_profile(heap_profile)
    if bounds and is_exact(bounds):
        environment["HAKMEM_RECORD_ALL"] = "1"
    if summary:
        refuse_unwritable(summary, "--markdown")
    known = known_options(library.read_bytes())
    environment.update(parse_setting(setting, known) for setting in settings)
    refuse_unfit(ctx, command[0])
    environment["LD_PRELOAD"] = preload(library)
    if why := effect.obstacle(command[0], library):
        if bounds:
            raise click.ClickException(f"--budget: HAKMEM can tell nothing of this program: {why}")
        click.echo(f"hakmem: no effect: {why}" + (f"; {heap_profile} will not be written" if heap_profile else ""),
                   err=True)
    elif heap_profile and effect.is_go_program(command[0]):
        click.echo(
            f"hakmem: {command[0]} is a Go program: the profile has what its C code allocates, and nothing of Go's own "
            "heap",
            err=True)
    if bounds or (heap_profile and not why):
        from hakmem import watched

        watched.run(ctx, command, environment, bounds or (), summary)
    replace_self(ctx, command, environment)


def replace_self(ctx: click.Context, command: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """Replaces this process by the program."""
    in_own_terms()
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        click.echo(f"hakmem: cannot run {command[0]}: {error.strerror}", err=True)
        ctx.exit(NOT_EXECUTABLE)
