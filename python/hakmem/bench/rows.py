"""The rows of the tables: what rows.toml lists, which of it is run, and as which command."""

import re
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import click

from hakmem import paths

FILE = Path(__file__).with_name("rows.toml")
WORKLOADS = Path(__file__).with_name("workloads")

GROUPS = ("driver", "program")
# What is compared as time: the seconds of the driver's timed part, seconds for a million operations of one that runs
# for a time, or the wall time of the whole program.
FIGURES = ("seconds", "rate", "wall")
PRELOADS = ("program", "child")


@dataclass(frozen=True)
class Row:
    """One line of the tables.

    command: the first word of a driver is a program of the build; {files} in any word is the folder of inputs,
    {workloads} that of the scripts. scale_at: the index in it of the amount of work. prepare: the function of inputs.py
    that makes the inputs, or of programs.py that builds the program. setting: variables of the row's own.
    preload: `child` where the program is a script that gives the allocator, which it finds in BENCH_PRELOAD, to a child
    alone, and reports that child's figures. idle: in the first round the driver also waits when all is freed, and tells
    what memory is held then. verbatim: the command is a user's, and braces in it are its own."""

    name: str
    group: str
    threads: int
    about: str
    command: tuple
    figure: str
    quick: bool = False
    scale_at: int | None = None
    time_limit_s: float = 30.0
    prepare: str | None = None
    setting: dict = field(default_factory=dict)
    preload: str = "program"
    idle: bool = False
    verbatim: bool = False

    def describe(self, scale=1.0):
        return {"group": self.group, "threads": self.threads, "command": " ".join(self.scaled(scale)),
                "about": self.about}

    def scaled(self, scale):
        """The command with its amount of work, where it names one, times scale."""
        words = list(self.command)
        if self.scale_at is not None and scale != 1:
            words[self.scale_at] = str(max(1, round(int(words[self.scale_at]) * scale)))
        return words

    def argv(self, files, scale=1.0):
        if self.verbatim:
            return list(self.command)
        words = [word.replace("{files}", str(files)).replace("{workloads}", str(WORKLOADS))
                 for word in self.scaled(scale)]
        if self.group == "driver":
            words[0] = str(paths.program(words[0]))
        return words


def check(number, table):
    """A Row of one table of rows.toml; ValueError says what is wrong with it."""
    where = f"{FILE.name}: row {table.get('name', number)}"
    fields = Row.__dataclass_fields__
    for key in table:
        if key not in fields:
            raise ValueError(f"{where}: unknown key {key}")
    for key in ("name", "group", "threads", "about", "command", "figure"):
        if key not in table:
            raise ValueError(f"{where}: {key} is missing")
    for key, allowed in (("group", GROUPS), ("figure", FIGURES), ("preload", PRELOADS)):
        if table.get(key, allowed[0]) not in allowed:
            raise ValueError(f"{where}: {key} is {table[key]}, not one of {', '.join(allowed)}")
    command = table["command"]
    if not command or not all(isinstance(word, str) for word in command):
        raise ValueError(f"{where}: command is not a list of words")
    scale_at = table.get("scale_at")
    if scale_at is not None and not (0 < scale_at < len(command) and command[scale_at].isdigit()):
        raise ValueError(f"{where}: scale_at {scale_at} is not the place of a number in {command}")
    setting = {key: str(value) for key, value in table.get("setting", {}).items()}
    return Row(**{**table, "command": tuple(command), "setting": setting})


def load(path=FILE):
    with open(path, "rb") as file:
        tables = tomllib.load(file).get("row", [])
    rows = [check(number, table) for number, table in enumerate(tables, 1)]
    names = [row.name for row in rows]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path}: there are two rows {', '.join(sorted(twice))}")
    return rows


def choose(rows, patterns, quick):
    """The rows that any of the patterns finds in the name; without patterns all, or those of a quick run."""
    if not patterns:
        return [row for row in rows if row.quick or not quick]
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"--rows {pattern}: {error}") from error
    chosen = [row for row in rows if any(re.search(pattern, row.name) for pattern in patterns)]
    if not chosen:
        raise click.UsageError(f"no row matches {' or '.join(patterns)}; there are "
                                   f"{', '.join(row.name for row in rows)}")
    return chosen


def missing(row):
    """What the row needs and the machine lacks, as a sentence; None when it can be run."""
    if row.group == "driver":
        path = paths.program(row.command[0])
        return None if path.is_file() else f"missing: {path} (./hakmem build)"
    from hakmem.bench import inputs

    lacking = inputs.requirements(row)
    if lacking:
        return "; ".join(lacking)
    word = row.command[0]
    if "{" not in word and shutil.which(word) is None:
        return f"missing: the program {word}"
    return None


def prepare(row, folder):
    """Makes the row's inputs in the folder, unless they lie there."""
    if row.prepare is None:
        return
    from hakmem.bench import inputs, programs

    function = getattr(inputs, row.prepare, None) or getattr(programs, row.prepare, None)
    if function is None:
        raise ValueError(f"{FILE.name}: row {row.name}: neither inputs.py nor programs.py has a function {row.prepare}")
    function(folder)
