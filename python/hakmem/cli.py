"""The command line: one subcommand a module, imported only when it is called."""

import importlib
import importlib.metadata
import re

import click

from hakmem import paths

# Subcommand -> "module:function". What a module imports (charts, numpy) is paid for by its own subcommand alone.
COMMANDS = {
    "serve": "hakmem.serve.command:serve",
    "stats": "hakmem.live.command:stats",
    "explain": "hakmem.live.command:explain",
    "map": "hakmem.live.command:map_command",
    "bench": "hakmem.bench.command:bench",
    "compare": "hakmem.bench.command:compare",
    "heap": "hakmem.heap.command:heap",
    "help": "hakmem.cli:help_command",
    "doctor": "hakmem.doctor.command:doctor",
    "peers": "hakmem.peers.command:peers",
    "run": "hakmem.run:run",
    "top": "hakmem.top.command:top",
    "trace": "hakmem.trace.command:trace",
}


# What a usage line calls the command, however it was started.
NAME = "hakmem"


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports the one that is asked for."""

    def list_commands(self, ctx):
        return sorted(COMMANDS)

    def get_command(self, ctx, cmd_name):
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), function)


def version():
    """The version of these tools and the library beside them: in a checkout the header's, else that of the wheel."""
    header = paths.CHECKOUT / "include/hakmem/hakmem.h"
    if header.is_file():
        return re.search(r'^#define HAK_VERSION_STRING "(.*)"$', header.read_text(encoding="utf-8"), re.MULTILINE)[1]
    return importlib.metadata.version("hakmem")


def print_version(ctx, parameter, wanted):
    if wanted:
        click.echo(f"hakmem {version()}")
        ctx.exit()


@click.command("help", add_help_option=False)
@click.argument("words", nargs=-1, metavar="[COMMAND [SUBCOMMAND]]")
def help_command(words):
    """Print what the commands are, or the page of one."""
    main([*words, "--help"], prog_name=NAME)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog="""\b
Exit status: 0 done; 1 failed; 2 the command line is wrong. run, trace record
and peers run end as PROGRAM does, or with 126 where it cannot be run, 127
where it is not there.""")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version,
              help="Print HAKMEM's version.")
def main():
    """The tools of the HAKMEM memory allocator."""
