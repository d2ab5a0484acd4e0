"""Writes the manual pages of the command hakmem into a folder: hakmem.1, and one for each subcommand. Usage: FOLDER
VERSION DATE"""

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

# Takes the checkout's own modules, even if the environment has others installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from hakmem.cli import COMMANDS, main

# The longest summary of a command, in the line that whatis and apropos show.
LONGEST_SUMMARY = 120


def load(group: click.Group) -> None:
    """Loads all subcommands, because click-man reads only loaded ones and these are loaded when called."""
    context = click.Context(group)
    # All commands, those too that help does not list: a page has room.
    group.commands = {name: command for name in (COMMANDS if group is main else group.list_commands(context))
                      if (command := group.get_command(context, name))}
    for command in group.commands.values():
        command.short_help = command.get_short_help_str(LONGEST_SUMMARY)
        if isinstance(command, click.Group):
            load(command)


def mark_preformatted(page: str) -> str:
    """Returns the page with click's mark of preformatted paragraphs as roff commands."""
    lines, inside = [], False
    for line in page.split("\n"):
        if line == "\b":
            lines.append(".nf")
            inside = True
            continue
        if inside and line.startswith("."):
            lines.append(".fi")
            inside = False
        # In text, hyphens of options and file names must be ones that can be searched for and copied.
        lines.append(line if line.startswith(".") else line.replace(r"\-", "-").replace("-", r"\-"))
    return "\n".join(lines)


folder, version, date = sys.argv[1:]
load(main)
write_man_pages("hakmem", main, version=f"hakmem {version}", target_dir=folder, date=date)
for path in Path(folder).glob("*.1"):
    path.write_text(mark_preformatted(path.read_text()))
