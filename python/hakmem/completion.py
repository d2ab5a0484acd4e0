"""The command `hakmem completion`: what a shell runs to complete commands, options, PIDs and names.

The scripts are click's. For each word to complete they run the command again with _HAKMEM_COMPLETE set.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from hakmem.version import NAME

VARIABLE = "_HAKMEM_COMPLETE"
SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
FLAVORS = ("release", "debug", "asan", "ubsan", "tsan", "cycles", "clang", "aarch64", "riscv64")
FUZZED = ("calls", "maps", "options", "procfs", "recording", "trace", "heap", "image", "info", "jit",
          "linking", "report",
          "symbols")


def complete_program(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers programs of PATH for a first word without a slash; leaves files to the shell otherwise."""
    if incomplete and "/" not in incomplete and not context.params.get(parameter.name):
        found = {entry for folder in os.environ.get("PATH", "").split(":") if os.path.isdir(folder or ".")
                 for entry in os.listdir(folder or ".") if entry.startswith(incomplete)}
        if found:
            return [CompletionItem(name) for name in sorted(found)]
    return [CompletionItem(incomplete, type="file")]


def folder_command(name: str, about: str) -> click.Command:
    """Returns a command that takes a folder."""
    return click.Command(name, short_help=about, params=[click.Argument(["folder"], type=click.Path(file_okay=False))])


def flavor_option() -> click.Option:
    """Returns the option --flavor."""
    return click.Option(["--flavor"], type=click.Choice(FLAVORS), multiple=True)


# ./hakmem's own commands, as far as a shell completes them. It sets HAKMEM_CHECKOUT when a shell asks.
CHECKOUT_COMMANDS = {command.name: command for command in (
    click.Command("build", short_help="build the library and its programs",
                  params=[click.Argument(["flavor"], type=click.Choice((*FLAVORS, "coverage")))]),
    click.Command("test", short_help="build and test", params=[
        flavor_option(),
        *(click.Option([option], is_flag=True)
          for option in ("--all", "--again", "--changed", "--coverage", "--fresh", "--yes")),
        *(click.Option([option]) for option in ("--soak", "--seed", "--only"))]),
    click.Command("fuzz", short_help="look for inputs that break a part of HAKMEM", params=[
        click.Argument(["target"], type=click.Choice(FUZZED)), click.Option(["--minutes"])]),
    click.Command("shell", short_help="a shell with all that a developer needs", params=[
        click.Argument(["command"], nargs=-1, shell_complete=complete_program)]),
    folder_command("wheel", "make a Python wheel"),
    folder_command("amalgamate", "make the one-file source"),
    folder_command("crates", "make the Rust crates"),
    folder_command("package", "make everything that users install"),
) if command.name}


def script(shell: str, main: click.Command) -> str:
    """Returns the shell's script for the tools' command. It runs the word that was typed, which may be a checkout's
    command."""
    text = SHELLS[shell](main, {}, NAME, VARIABLE).source()
    if shell == "zsh":
        text = text.replace(f"    (( ! $+commands[{NAME}] )) && return 1\n", "")
        return text.replace(f"{VARIABLE}=zsh_complete {NAME})",
                            f"{VARIABLE}=zsh_complete ${{(Q)words[1]}} 2>/dev/null)")
    if shell == "fish":
        return text.replace(f"(commandline -t) {NAME});", "(commandline -t) (commandline -opc)[1] 2>/dev/null);")
    return text.replace(f"{VARIABLE}=bash_complete $1)", f'{VARIABLE}=bash_complete "$1" 2>/dev/null)')


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete hakmem's commands, options, PIDs and the names of processes.

    \b
    bash, in ~/.bashrc:                   eval "$(hakmem completion bash)"
    zsh, in ~/.zshrc, behind compinit:    eval "$(hakmem completion zsh)"
    fish, in ~/.config/fish/config.fish:  hakmem completion fish | source

    From a checkout, ./hakmem completion does the same for ./hakmem."""
    click.echo(script(shell, ctx.find_root().command))
