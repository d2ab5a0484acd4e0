"""The command `hakmem peers`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection

import click

from hakmem import paths, starter
from hakmem.completion import complete_program
from hakmem.peers import Peer, PeersError, load_peers, read_manifest
from hakmem.peers.build import build_peers, describe_origin, locked_crates, packages_for
from hakmem.peers.progress import Progress
from hakmem.peers.recipes import HERE, RECIPES, Recipe
from hakmem.screen import Console, Table

# If the output is no terminal, a line is as long as it needs to be.
WIDTH = None if sys.stdout.isatty() else 500


def check_names(context: click.Context | None, parameter: click.Parameter | None,
                names: Collection[str]) -> Collection[str]:
    """Checks names of peers (click callback). No names mean all."""
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise click.BadParameter(f"no such peer: {', '.join(unknown)} (there are {', '.join(RECIPES)})")
    return names


def require_peer(name: str) -> Peer:
    """Returns the built Peer of a name."""
    check_names(None, None, [name])
    built = load_peers()
    if name not in built:
        raise PeersError(f"{name} is not built; run ./hakmem peers build {name}")
    return built[name]


def chosen(names: tuple[str, ...]) -> list[Recipe]:
    """Returns the recipes of these names, or all."""
    return [recipe for name, recipe in RECIPES.items() if not names or name in names]


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offers the names of peers."""
    return [name for name in RECIPES if name.startswith(incomplete)]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def peers() -> None:
    """Build and run the other allocators, which are libraries to preload."""
    if not HERE.is_dir():
        raise click.ClickException(
            "only a checkout has what builds the other allocators; hakmem compare takes those that "
            "are installed, and any other by --add NAME=LIBRARY")


@peers.command("list")
def list_peers() -> None:
    """Tell of each peer: version, source, license, and its library if it is built."""
    built = read_manifest()
    crates = locked_crates()
    table = Table()
    for heading in ("peer", "version", "source", "license"):
        table.add_column(heading, no_wrap=True)
    table.add_column("library")
    for name, recipe in RECIPES.items():
        peer = built.get(name)
        origin = describe_origin(recipe, crates)
        if peer is None:
            row = ("", origin, "not built")
        else:
            row = (peer.version, peer.source, str(peer.library) if peer.library.exists() else
                   f"{peer.library} is gone: build it again")
        table.add_row(name, row[0], row[1], recipe.license, row[2])
    Console(width=WIDTH).print(table)


@peers.command("build")
@click.argument("names", nargs=-1, callback=check_names, shell_complete=complete_names)
@click.option("--anew", is_flag=True, help="Build what is built already, too.")
@click.option("--packages", is_flag=True, help="Print the Debian packages that a build lacks, and build nothing.")
def build(names: tuple[str, ...], anew: bool, packages: bool) -> None:
    """Fetch, build and check the peers NAMES, or all that are not built or whose recipe has changed.

    Standard error shows the current step, its time, and the end of the log. All peers take some fifteen minutes on two
    processors, most of it for TCMalloc."""
    def announce(recipe: Recipe, version: str | None) -> None:
        click.echo(f"{recipe.name} {version or '(version not known yet)'}, {describe_origin(recipe, crates)}", err=True)

    def tell(recipe: Recipe, peer: Peer | None, made: bool, error: PeersError | None) -> None:
        if error:
            click.echo(f"Error: {error.message}", err=True)
        elif peer:
            click.echo(f"{recipe.name} {peer.version}: {'built and checked' if made else 'is there'}: {peer.library}")

    recipes, crates = chosen(names), locked_crates()
    if packages:
        for package in packages_for(recipes, paths.peers_folder()):
            click.echo(package)
        return
    errors = build_peers(recipes, anew, tell, Progress(), announce)
    if errors:
        raise PeersError(f"{len(errors)} of {len(recipes)} peers could not be set up")
    told = "1 peer is" if len(recipes) == 1 else f"{len(recipes)} peers are"
    click.echo(f"{told} set up in {paths.peers_folder()}")


@peers.command("path")
@click.argument("name", shell_complete=complete_names)
def path(name: str) -> None:
    """Print the library of the peer NAME, as LD_PRELOAD takes it."""
    click.echo(require_peer(name).library)


@peers.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", shell_complete=complete_names)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED,
                shell_complete=complete_program)
def run(name: str, command: tuple[str, ...]) -> None:
    """Run PROGRAM on the peer NAME, with the variables that the peer asks for: run NAME -- PROGRAM ARGUMENTS."""
    peer = require_peer(name)
    words = list(command[1:] if command[0] == "--" else command)
    if not words:
        raise click.UsageError("run needs a program")
    program = shutil.which(words[0]) or words[0]
    if why := starter.obstacle(program, peer.library):
        click.echo(f"hakmem: no effect: {why}", err=True)
    preloaded = ":".join(filter(None, [str(peer.library), os.environ.get("LD_PRELOAD")]))
    env = {**peer.setting, **os.environ, "LD_PRELOAD": preloaded}
    os.execve(program, words, env)
