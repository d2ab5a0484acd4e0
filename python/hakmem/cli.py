"""The command line: one subcommand a module, imported only when it is called."""

import importlib

import click

# Subcommand -> "module:function". What a module imports (charts, numpy) is paid for by its own subcommand alone.
COMMANDS = {
    "serve": "hakmem.serve.command:serve",
    "stats": "hakmem.live.command:stats",
    "explain": "hakmem.live.command:explain",
    "map": "hakmem.live.command:map_command",
    "bench": "hakmem.bench.command:bench",
    "compare": "hakmem.bench.command:compare",
    "heap": "hakmem.heap.command:heap",
    "doctor": "hakmem.doctor.command:doctor",
    "peers": "hakmem.peers.command:peers",
    "run": "hakmem.run:run",
    "top": "hakmem.top.command:top",
    "trace": "hakmem.trace.command:trace",
}


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports the one that is asked for."""

    def list_commands(self, ctx):
        return sorted(COMMANDS)

    def get_command(self, ctx, cmd_name):
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), function)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """The tools of the HAKMEM memory allocator."""
