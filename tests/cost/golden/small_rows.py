"""Measures each driver at a fixed seed and small size (deterministic.toml): instructions per operation under callgrind,
memory system calls, soft page faults."""

import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor

from memory_calls import MEMORY_CALLS, memory_calls
from subject import REPOSITORY, CheckError, run

sys.path.insert(0, str(REPOSITORY / "python"))

from hakmem.bench import deterministic  # noqa: E402  (the package is in the folder that was just added)

# One thread makes all calls and no clock decides any: so the library and its compiler alone decide what a row costs.
# spawn-true runs a program of the system's.
ROWS = {name: row for name, row in deterministic.load().items()
        if row.threads == 1 and not row.varies and name != "spawn-true"}
# Fixes what depends on the machine's speed and memory.
SAME_EVERYWHERE = {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_ARENA_SIZE": "8G"}
# Whether a huge page is available depends on the machine.
SMALL_PAGES = {"HAKMEM_THP": "never"}


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
    bare_calls, bare_faults = memory_calls(["true"]), soft_faults(["true"], {})
    rows = {}
    for row in chosen(wanted):
        argv = whole_command(subject, row)
        calls = memory_calls(argv, *settings)
        figures = {"calls": sum(calls.values()) - sum(bare_calls.values())}
        figures.update((call, calls[call] - bare_calls[call]) for call in MEMORY_CALLS)
        figures["faults"] = soft_faults(argv, {**library, **SMALL_PAGES}) - bare_faults
        rows[row.name] = {column: str(value) for column, value in figures.items()}
    return rows
