"""The small rows of deterministic.toml: what they run, and instructions per operation of them.

The standard library is all that this module needs: tests/cost/golden counts with it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hakmem.bench.instructions import count
from hakmem.compat import read_toml

if TYPE_CHECKING:
    from hakmem.records import Figures

FILE = Path(__file__).with_name("deterministic.toml")
FIGURES = ("program", "library", "calls", "faults")


@dataclass(frozen=True)
class SmallRow:
    """A driver with a fixed seed and small size.

    command: the run; its first word is a program of the build. base: the same command with as little work as the
    driver allows. Its cost is subtracted before dividing by the operations, so that no figure includes start and
    end. threads: including main. varies: figures that do not repeat; tests check only their bounds. why: the reason."""

    name: str
    command: tuple[str, ...]
    base: tuple[str, ...]
    threads: int = 1
    varies: tuple[str, ...] = ()
    why: str = ""
    quick = False


def check(number: int, table: dict[str, Any]) -> SmallRow:
    """Returns the SmallRow of one table of the file; raises ValueError if it is wrong."""
    where = f"{FILE.name}: row {table.get('name', number)}"
    for key in table:
        if key not in SmallRow.__dataclass_fields__:
            raise ValueError(f"{where}: unknown key {key}")
    for key in ("name", "command", "base"):
        if key not in table:
            raise ValueError(f"{where}: {key} is missing")
    for key in ("command", "base"):
        if not table[key] or not all(isinstance(word, str) for word in table[key]):
            raise ValueError(f"{where}: {key} is not a list of words")
    if table["command"][0] != table["base"][0] or table["command"] == table["base"]:
        raise ValueError(f"{where}: base is not the same program with less to do")
    varies = tuple(table.get("varies", ()))
    for figure in varies:
        if figure not in FIGURES:
            raise ValueError(f"{where}: varies names {figure}, not one of {', '.join(FIGURES)}")
    if bool(varies) != bool(table.get("why")):
        raise ValueError(f"{where}: varies and why go together")
    return SmallRow(**{**table, "command": tuple(table["command"]), "base": tuple(table["base"]), "varies": varies})


def load(path: Path = FILE) -> dict[str, SmallRow]:
    """Returns {name: SmallRow} for the file."""
    rows = [check(number, table) for number, table in enumerate(read_toml(path).get("row", []), 1)]
    names = [row.name for row in rows]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path}: there are two rows {', '.join(sorted(twice))}")
    return {row.name: row for row in rows}


def per_operation(row: SmallRow, programs: str | Path, preload: str | None = None,
                  env: dict[str, str] | None = None) -> Figures:
    """Returns {"total", "library", "ops"}: instructions per operation in the whole program and in the allocator, and
    the number of operations counted. If they cannot be counted, the figures are None and "reason" says why.

    programs: the folder of the drivers. preload and env: as in instructions.count."""
    counts = []
    for command in (row.base, row.command):
        counted = count([Path(programs, command[0]), *command[1:]], preload, env)
        if counted["total"] is None:
            return counted
        if not isinstance(counted["ops"], int):
            return {"total": None, "library": None, "ops": None,
                    "reason": f"{' '.join(command)} reports no number of operations"}
        counts.append(counted)
    base, whole = counts
    operations = whole["ops"] - base["ops"]
    if operations <= 0:
        return {"total": None, "library": None, "ops": None,
                "reason": f"{row.name}: {whole['ops']} operations are no more than the base's {base['ops']}"}
    return {"total": (whole["total"] - base["total"]) / operations,
            "library": (whole["library"] - base["library"]) / operations, "ops": operations}
