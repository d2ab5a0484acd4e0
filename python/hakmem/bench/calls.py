"""Counts how often a run asks the system for memory or gives it back, with one run under strace."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.bench.runner import Conditions, environment, judge, launch

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.rows import Row
    from hakmem.records import Entry

CALLS = ("mmap", "munmap", "mremap", "madvise", "brk", "mprotect", "mincore", "process_madvise")
LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")
SLOWER = 4


def available() -> bool:
    """Returns whether strace is installed."""
    return shutil.which("strace") is not None


def parse_table(text: str) -> dict[str, int]:
    """Returns {call: count} from the output of `strace -c`. Calls that were never made are absent."""
    counts = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match[2] in CALLS:
            counts[match[2]] = int(match[1])
    return counts


def count_calls(row: Row, allocator: Allocator, conditions: Conditions, expected: int = 0) -> Entry:
    """Returns the entry of a result's "calls" for one row and allocator. If the program did not end well under
    strace, it has no total but a `detail`."""
    variable = "BENCH_PRELOAD" if row.preload == "child" else "LD_PRELOAD"
    limit = SLOWER * row.time_limit_s
    with tempfile.TemporaryDirectory(prefix="hakmem-calls-") as folder:
        table = Path(folder, "table")
        words = ["strace", "-f", "-c", "--seccomp-bpf", "-e", f"trace={','.join(CALLS)}", "-o", str(table)]
        if allocator.library:
            words += ["-E", f"{variable}={allocator.library}"]
        words += row.argv(conditions.files, conditions.scale)
        whole, _, tail, unloaded = launch(words, env=environment(row, allocator, conditions), limit=limit,
                                          stdin=conditions.input)
        entry = {"row": row.name, "allocator": allocator.name}
        status, detail = judge(row, whole, tail, unloaded, limit, expected)
        if status != "ok":
            return {**entry, "memory": {}, "memory_total": None, "detail": f"{status}: {detail}"}
        memory = parse_table(table.read_text(errors="replace"))
    return {**entry, "memory": memory, "memory_total": sum(memory.values())}
