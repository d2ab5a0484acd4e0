"""`hakmem run`: a program on HAKMEM, with what it shall tell. ./hakmem run is the same and builds the library first."""

import os
import shutil
import signal
from pathlib import Path

import click

from hakmem import effect, paths
from hakmem.library import known_options

NOT_EXECUTABLE, NOT_FOUND = 126, 127


def parse_setting(text, known):
    """(variable, value) of NAME=VALUE, where NAME may lack HAKMEM_ and be in either case."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text}: NAME=VALUE is wanted", param_hint="--set")
    name = "HAKMEM_" + name.upper().removeprefix("HAKMEM_")
    if name not in known:
        raise click.BadParameter(f"{text}: there is no option {name}; docs/options.md lists them", param_hint="--set")
    return name, value


def check_profile(file):
    """The absolute path of a profile to be: it is written when the program ends, wherever that has gone by then."""
    file = Path(os.path.abspath(file))
    try:
        there = file.parent.is_dir()
    except PermissionError:
        there = True  # for all that can be told
    if not there:
        raise click.BadParameter(f"{file}: there is no folder {file.parent}", param_hint="--heap-profile")
    if not os.access(file.parent, os.X_OK):
        raise click.BadParameter(f"{file}: {file.parent} cannot be looked into", param_hint="--heap-profile")
    if file.is_dir():
        raise click.BadParameter(f"{file} is a folder", param_hint="--heap-profile")
    if not os.access(file.parent, os.W_OK):
        raise click.BadParameter(f"{file}: {file.parent} cannot be written to", param_hint="--heap-profile")
    if file.exists() and not os.access(file, os.W_OK):
        raise click.BadParameter(f"{file} cannot be written to", param_hint="--heap-profile")
    return str(file)


def unfit(name):
    """(exit status, what is wrong) of a program that is not there or cannot be run, as shells have it; else None."""
    if shutil.which(name) is not None:
        return None
    if "/" in name and os.path.isdir(name):
        return NOT_EXECUTABLE, "is a folder"
    if "/" in name and os.path.exists(name):
        return NOT_EXECUTABLE, "is not executable"
    return NOT_FOUND, "not found"


def refuse_unfit(ctx, name):
    """Ends the command as a shell does where the program is not there or cannot be run."""
    if wrong := unfit(name):
        status, words = wrong
        click.echo(f"hakmem: program '{name}' {words}", err=True)
        ctx.exit(status)


def preload(library):
    """LD_PRELOAD's value, with the library before what is there."""
    if any(character.isspace() or character == ":" for character in str(library)):
        raise click.ClickException(f"LD_PRELOAD cannot name {library}: there is a blank or a colon in it")
    before = os.environ.get("LD_PRELOAD")
    return f"{library}:{before}" if before else str(library)


class RunCommand(click.Command):
    """--stats alone means --stats=text; the word behind it is never its value."""

    def parse_args(self, ctx, args):
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "--stats":
                args[at] = "--stats=text"
            at += 2 if args[at] in ("--set", "--heap-profile") else 1
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": False})
@click.option("--stats", type=click.Choice(["text", "json"]), help="Print statistics at the end; text if not said.")
@click.option("--profile", is_flag=True, help="Print a cycle profile at the end.")
@click.option("--heap-profile", metavar="FILE", help="Write a heap profile at the end, for pprof and `hakmem heap`.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Any option of the library, with or without HAKMEM_ before it.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGUMENTS]...")
@click.pass_context
def run(ctx, stats, profile, heap_profile, settings, command):
    """Run PROGRAM with HAKMEM in place of its malloc. Its exit status is kept.

    Where HAKMEM cannot take effect (a static or set-user-id program, one for another machine), a line on standard error
    says so, and the program runs without it."""
    library = paths.cycles_library() if profile else paths.hakmem_library()
    if not library.is_file():
        raise click.ClickException(f"{library} is not there; ./hakmem build {'cycles ' if profile else ''}builds it")
    environment = {name: value for name, value in os.environ.items() if name != "HAKMEM_BUILD_DIR"}
    if stats:
        environment["HAKMEM_SHOW_STATS"] = "json" if stats == "json" else "1"
    if profile:
        environment["HAKMEM_TINY_PROFILE"] = "1"
    if heap_profile is not None:
        environment["HAKMEM_HEAP_PROFILE"] = check_profile(heap_profile)
    known = known_options(library.read_bytes())
    environment.update(parse_setting(setting, known) for setting in settings)
    refuse_unfit(ctx, command[0])
    environment["LD_PRELOAD"] = preload(library)
    if why := effect.obstacle(command[0], library):
        click.echo(f"hakmem: no effect: {why}", err=True)
    # Python ignores these, which a program would inherit.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        click.echo(f"hakmem: cannot run {command[0]}: {error.strerror}", err=True)
        ctx.exit(NOT_EXECUTABLE)
