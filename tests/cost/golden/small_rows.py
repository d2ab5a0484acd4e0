"""Measures each driver at a fixed seed and small size (deterministic.toml): instructions per operation under callgrind,
memory system calls, soft page faults."""

import math
import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor

from memory_calls import MEMORY_CALLS, memory_calls
from subject import REPOSITORY, CheckError, run

sys.path.insert(0, str(REPOSITORY / "python"))

from hakmem.bench import deterministic  # noqa: E402  (the package is in the folder that was just added)

ROWS = deterministic.load()
# Fixes what depends on the machine's speed and memory.
SAME_EVERYWHERE = {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_ARENA_SIZE": "8G"}
# Whether a huge page is available depends on the machine.
SMALL_PAGES = {"HAKMEM_THP": "never"}
# Allowed beside 1 %. A fault in a mapped file brings up to 16 pages with it, as many as the page cache holds together,
# so the start of a program takes more or fewer on each machine: spawn-true 267 to 283.
FAULTS_SLACK = 24
# Runs of a program with threads, of which the least counts: in one of fifty, threads collide badly.
LEAST_OF = 3
# Runs for the bound of a varying figure: their highest, times 1.6, because the scheduler varies.
REPEATS = 5
MARGIN = 1.6


def chosen(wanted):
    return [row for name, row in ROWS.items() if wanted is None or name in wanted]


def whole_command(subject, row):
    return [subject.program(row.command[0]), *row.command[1:]]


def measure_instructions(subject, wanted=None):
    """Counts as many rows at once as there are processors: what runs beside a program does not change its count."""

    def count(row):
        subject.program(row.command[0])
        return deterministic.per_operation(row, subject.programs, subject.library, SAME_EVERYWHERE)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = list(pool.map(count, chosen(wanted)))
    rows = {}
    for row, counted in zip(chosen(wanted), counts, strict=True):
        if counted["total"] is None:
            raise CheckError(f"{row.name}: {counted['reason']}")
        rows[row.name] = {"program": f"{counted['total']:.2f}", "library": f"{counted['library']:.2f}"}
    return rows


def soft_faults(argv, env):
    """Soft page faults of a whole run, with the same addresses each time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    run(["setarch", "-R", *argv], env)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


def measure_kernel(subject, wanted=None):
    library = {"LD_PRELOAD": str(subject.library), **SAME_EVERYWHERE}
    settings = [f"{name}={value}" for name, value in library.items()]
    bare_calls = memory_calls(["true"])
    bare_faults = min(soft_faults(["true"], {}) for _ in range(LEAST_OF))
    rows = {}
    for row in chosen(wanted):
        argv, runs = whole_command(subject, row), LEAST_OF if row.threads > 1 else 1
        calls = min((memory_calls(argv, *settings) for _ in range(runs)), key=lambda counts: sum(counts.values()))
        figures = {"calls": sum(calls.values()) - sum(bare_calls.values())}
        figures.update((call, calls[call] - bare_calls[call]) for call in MEMORY_CALLS)
        figures["faults"] = min(soft_faults(argv, {**library, **SMALL_PAGES}) for _ in range(runs)) - bare_faults
        rows[row.name] = {column: str(value) for column, value in figures.items()}
    return rows


def bound(text):
    value = MARGIN * float(text)
    return f"<={value:.2f}" if "." in text else f"<={math.ceil(value)}"


def freeze(rows):
    """The rows as a golden file has them: a bound for a varying figure, and then nothing for each kind of call."""
    frozen = {}
    for name, figures in rows.items():
        varies = ROWS[name].varies
        frozen[name] = {column: bound(value) if column in varies else
                        "-" if column in MEMORY_CALLS and "calls" in varies else value
                        for column, value in figures.items()}
    return frozen


def varying(columns):
    """The rows in which one of the columns varies."""
    return [name for name, row in ROWS.items() if set(columns) & set(row.varies)]


def notes(columns):
    return [f"{name}: {ROWS[name].why}." for name in varying(columns)]
