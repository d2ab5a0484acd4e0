"""Counts the system calls of a run under strace, and reads who made them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.bench.runner import Conditions, environment, judge, launch

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.rows import Row
    from hakmem.records import Entry

CALLS = ("mmap", "munmap", "mremap", "madvise", "brk", "mprotect", "mincore", "process_madvise")
LINE = re.compile(r"^\s*[\d.]+\s+([\d.]+)\s+\d+\s+(\d+)\s+(?:(\d+)\s+)?(\w+)$")
SLOWER = 4
COUNTING = ("-c", "--seccomp-bpf", "-e", f"trace={','.join(CALLS)}")
# strace's own lines: a call, the end of one that another thread's call interrupted, and a frame of its stack.
BEGUN = re.compile(r"^(\d+) +(\w+)\((.*)$")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
FRAME = re.compile(r"^ > (.*?)\((.*?)(?:\+0x[0-9a-f]+)?\) \[0x[0-9a-f]+\]$")


@dataclass
class Tally:
    """How often a call was made, how often it failed, and the seconds in it."""

    count: int
    errors: int
    seconds: float


@dataclass
class Made:
    """One call. frames: (file, function), innermost first."""

    name: str
    words: str
    frames: list[tuple[str, str]]


def available() -> bool:
    """Returns whether strace is installed."""
    return shutil.which("strace") is not None


def parse_table(text: str) -> dict[str, Tally]:
    """Returns {call: Tally} from the output of `strace -c`. Calls that were never made are absent."""
    found = (match for match in map(LINE.match, text.splitlines()) if match and match[4] != "total")
    return {match[4]: Tally(int(match[2]), int(match[3] or 0), float(match[1])) for match in found}


def parse_stacks(lines: Iterable[str]) -> Iterator[Made]:
    """Yields each call in the output of `strace -f -k`."""
    begun: dict[str, str] = {}
    last: Made | None = None
    for line in lines:
        if (frame := FRAME.match(line)) and last:
            last.frames.append((frame[1], frame[2]))
            continue
        if match := BEGUN.match(line):
            if "<unfinished" in line:
                begun[match[1]] = match[3]
                continue
            words = match[3]
        elif match := RESUMED.match(line):
            words = begun.pop(match[1], "") + match[3]
        else:
            continue
        if last:
            yield last
        last = Made(match[2], words, [])
    if last:
        yield last


def strace(row: Row, allocator: Allocator, conditions: Conditions, options: Sequence[str], limit: float,
           expected: int = 0) -> tuple[str, str, str]:
    """Runs a row once under strace -f with options. Returns (status, what went wrong, strace's output)."""
    variable = "BENCH_PRELOAD" if row.preload == "child" else "LD_PRELOAD"
    with tempfile.TemporaryDirectory(prefix="hakmem-calls-") as folder:
        table = Path(folder, "table")
        words = ["strace", "-f", *options, "-o", str(table)]
        if allocator.library:
            words += ["-E", f"{variable}={allocator.library}"]
        words += row.argv(conditions.files, conditions.scale)
        whole, _, tail, unloaded = launch(words, env=environment(row, allocator, conditions), limit=limit,
                                          stdin=conditions.input)
        status, detail = judge(row, whole, tail, unloaded, limit, expected)
        return status, detail or "", table.read_text(errors="replace") if table.exists() else ""


def count_calls(row: Row, allocator: Allocator, conditions: Conditions, expected: int = 0) -> Entry:
    """Returns the entry of a result's "calls" for one row and allocator: how often it asked for memory or gave it back.
    If the program did not end well under strace, it has no total but a `detail`."""
    entry = {"row": row.name, "allocator": allocator.name}
    status, detail, text = strace(row, allocator, conditions, COUNTING, SLOWER * row.time_limit_s, expected)
    if status != "ok":
        return {**entry, "memory": {}, "memory_total": None, "detail": f"{status}: {detail}"}
    memory = {name: tally.count for name, tally in parse_table(text).items() if name in CALLS}
    return {**entry, "memory": memory, "memory_total": sum(memory.values())}
