"""The rows of the tables: reads rows.toml, chooses rows and makes their commands."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from hakmem import paths
from hakmem.compat import read_toml

FILE = Path(__file__).with_name("rows.toml")
CRATES_FILE = FILE.with_name("crates.toml")
WORKLOADS = Path(__file__).with_name("workloads")

class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """The row's name."""

    @property
    def quick(self) -> bool:
        """Whether a quick run has it."""


R = TypeVar("R", bound=Named)

GROUPS = ("driver", "program")
# What the real programs are.
KINDS = ("key-value server", "database", "interpreter", "compiler and linker", "solver and proof checker", "media",
         "document and image", "service", "tool")
# A user other than root, in a name space of its own, where root starts a program that refuses to be root's.
AS_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
# What a row compares as time. seconds: of the driver's timed part. rate: seconds for a million operations, for a driver
# that runs for a fixed time. wall: of the whole program.
FIGURES = ("seconds", "rate", "wall")
PRELOADS = ("program", "child")


@dataclass(frozen=True)
class Row:
    """One line of the tables.

    command: the first word of a driver's command is a program of the build. {files} in any word is the folder of
    inputs, {workloads} that of the scripts. scale_at: which word of the command is the amount of work. prepare: the
    function of inputs.py that makes the inputs, or of programs.py that builds the program. setting: variables for this
    row. preload: `child` if the program is a script that preloads the allocator, named by BENCH_PRELOAD, only into its
    child and reports the child's figures. checked: checked.sh runs the command and compares what it prints with what it
    printed on the system's allocator (inputs.py); `status` is the program's exit status, `stdin` its input. as_user:
    the program refuses to run as root. kind: of a real program, one of KINDS. idle: in the first round the driver also
    waits after freeing everything, and reports how much memory is held then. counts_calls: whether one more run counts
    the system calls. strace stops thousands of threads one by one, which takes minutes for each allocator. verbatim: a
    user's command, whose braces are its own."""

    name: str
    group: str
    threads: int
    about: str
    command: tuple[str, ...]
    figure: str
    quick: bool = False
    scale_at: int | None = None
    time_limit_s: float = 30.0
    prepare: str | None = None
    setting: dict[str, str] = field(default_factory=dict)
    preload: str = "program"
    kind: str | None = None
    checked: bool = False
    status: int = 0
    stdin: str = "/dev/null"
    as_user: bool = False
    idle: bool = False
    counts_calls: bool = True
    verbatim: bool = False

    def describe(self, scale: float = 1.0) -> dict[str, Any]:
        """Returns what a result file says about the row."""
        return {"group": self.group, "threads": self.threads, "command": " ".join(self.scaled(scale)),
                "about": self.about}

    def scaled(self, scale: float) -> list[str]:
        """Returns the command with its amount of work, if it has one, times scale."""
        words = list(self.command)
        if self.scale_at is not None and scale != 1:
            words[self.scale_at] = str(max(1, round(int(words[self.scale_at]) * scale)))
        return words

    def answer(self, files: str | Path) -> Path:
        """Returns the folder of what the checked program is expected to print."""
        return Path(files, "answers", self.name)

    def program(self, files: str | Path, scale: float = 1.0) -> list[str]:
        """Returns the command of the program itself."""
        if self.verbatim:
            return list(self.command)
        words = [word.replace("{files}", str(files)).replace("{workloads}", str(WORKLOADS))
                 for word in self.scaled(scale)]
        if self.group == "driver":
            words[0] = str(paths.program(words[0]))
        return words

    def input(self, files: str | Path) -> str:
        """Returns the file that the program reads as standard input."""
        return self.stdin.replace("{files}", str(files))

    def argv(self, files: str | Path, scale: float = 1.0) -> list[str]:
        """Returns the command to run."""
        words = self.program(files, scale)
        if not self.checked:
            return words
        folder = self.answer(files)
        return [*self.user(), "sh", str(WORKLOADS / "checked.sh"), str(folder / "expected"), str(folder / "output"),
                str(self.status), self.input(files), *words]

    def user(self) -> tuple[str, ...]:
        """Returns the words that make another user of root for a program that needs one."""
        return AS_USER if self.as_user and os.geteuid() == 0 else ()


def check(number: int, table: dict[str, Any]) -> Row:
    """Returns the Row of one table of rows.toml; raises ValueError if it is wrong."""
    where = f"{FILE.name}: row {table.get('name', number)}"
    fields = Row.__dataclass_fields__
    for key in table:
        if key not in fields:
            raise ValueError(f"{where}: unknown key {key}")
    for key in ("name", "group", "threads", "about", "command", "figure"):
        if key not in table:
            raise ValueError(f"{where}: {key} is missing")
    for key, allowed in (("group", GROUPS), ("figure", FIGURES), ("preload", PRELOADS), ("kind", KINDS)):
        if table.get(key, allowed[0]) not in allowed:
            raise ValueError(f"{where}: {key} is {table[key]}, not one of {', '.join(allowed)}")
    command = table["command"]
    if not command or not all(isinstance(word, str) for word in command):
        raise ValueError(f"{where}: command is not a list of words")
    scale_at = table.get("scale_at")
    if scale_at is not None and not (0 < scale_at < len(command) and command[scale_at].isdigit()):
        raise ValueError(f"{where}: scale_at {scale_at} is not the place of a number in {command}")
    if table.get("checked"):
        table = {**table, "preload": "child"}
    setting = {key: str(value) for key, value in table.get("setting", {}).items()}
    return Row(**{**table, "command": tuple(command), "setting": setting})


def load(path: Path = FILE) -> list[Row]:
    """Returns the rows of the file; raises ValueError if it is wrong."""
    tables = read_toml(path).get("row", [])
    rows = [check(number, table) for number, table in enumerate(tables, 1)]
    names = [row.name for row in rows]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path}: there are two rows {', '.join(sorted(twice))}")
    return rows


def choose(rows: Sequence[R], patterns: Sequence[str], quick: bool) -> list[R]:
    """Returns the rows whose name matches any of the patterns; without patterns all rows, or those of a quick run."""
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


def missing(row: Row) -> str | None:
    """Returns a sentence about what the row needs and the machine lacks; None if the row can run."""
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


def prepare(row: Row, folder: Path, scale: float = 1.0) -> None:
    """Makes the row's inputs in the folder, and what a checked program prints, unless they are there."""
    from hakmem.bench import inputs, programs

    if row.prepare is not None:
        function = getattr(inputs, row.prepare, None) or getattr(programs, row.prepare, None)
        if function is None:
            raise ValueError(
                f"{FILE.name}: row {row.name}: neither inputs.py nor programs.py has a function {row.prepare}")
        function(folder, scale)
    if row.checked:
        inputs.make_answer(row, folder)
