"""Finds the processes that run on HAKMEM, and what each holds."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from hakmem.apart import Failed, Late, in_steps
from hakmem.live.descriptor import find, may_serve
from hakmem.live.heap import snapshot
from hakmem.live.memory import UNSOUND, LiveError, NoPermission, NoProcess, ProcessMemory, problem_text
from hakmem.processes import Process, all_processes

# Limits of a look at one process: seconds, and bytes of address space.
SECONDS, SPACE_MOST = 20, 8 << 30


@dataclass
class Row:
    """A process on HAKMEM. Figures are bytes, None if they could not be read; `problem` says why."""

    pid: int
    name: str
    command: str
    version: str | None = None
    rss: int | None = None
    live: int | None = None  # blocks that the program holds
    reclaimable: int | None = None  # free memory that HAKMEM keeps for reuse and could give back
    problem: str = ""


@dataclass
class Survey:
    """rows: by RSS, largest first. unseen: the number of processes that may not be read, so that it cannot be told."""

    rows: list[Row]
    unseen: int


def figures(row: Row, memory: ProcessMemory) -> None:
    """Fills in the figures of the heap."""
    descriptor = find(memory)
    row.version = descriptor.version
    totals = snapshot(memory, descriptor).totals
    row.live, row.reclaimable = totals.live, max(0, totals.retained - totals.purged)


def look_at(process: Process, known: dict[tuple[str, int, str, int], bool]) -> dict[str, Any] | str | None:
    """Returns the row of a process as a dictionary; None if it does not run on HAKMEM, "unseen" if it may not be
    read."""
    row = Row(process.pid, process.name, process.command)
    try:
        memory = ProcessMemory(process.pid)
        if not may_serve(memory, known):
            return None
        row.rss = memory.rss()
        figures(row, memory)
    except NoPermission:
        return "unseen"
    except NoProcess:
        return None  # it has ended meanwhile
    except LiveError as error:
        row.problem = str(error)
    except (OSError, *UNSOUND) as error:
        row.problem = f"it makes no sense ({problem_text(error)})"
    return asdict(row)


def survey() -> Survey:
    """Returns the Survey of all processes in /proc except this one."""
    rows: list[Row] = []
    known: dict[tuple[str, int, str, int], bool] = {}
    unseen = 0
    processes = [process for process in all_processes() if process.pid != os.getpid()]
    for process, found in in_steps(lambda process: look_at(process, known), processes, SECONDS, SPACE_MOST):
        if isinstance(found, (Late, Failed)):
            late = f"kept its reader waiting for more than {SECONDS} seconds"
            problem = late if isinstance(found, Late) else str(found)
            rows.append(Row(process.pid, process.name, process.command, problem=f"process {process.pid}: {problem}"))
        elif found == "unseen":
            unseen += 1
        elif found:
            rows.append(Row(**found))
    return Survey(sorted(rows, key=lambda row: -(row.rss or 0)), unseen)
