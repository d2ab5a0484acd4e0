"""Counts memory system calls by strace, and defines the scenarios that bound their number."""

import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from subject import run

MEMORY_CALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore")
UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True)
class Scenario:
    """A run; the run whose calls are subtracted (None: a bare process); the most calls that may remain; and whether
    their number is the same each time. Where thread timing decides, only the bound is checked. env: variables of the
    run."""

    run: tuple
    base: tuple | None
    limit: int
    exact: bool
    env: tuple = ()


# On a loaded machine threads outlast the usual purge delay. They also wait for a processor so long that the purge
# thread takes the process for an idle one and gives back all that is free. Calls caused by time are not caused by
# threads: the delay is an hour, and there is no purge thread. 127: else more would leave at once without one (N7).
# Nor are the looks at what is resident (N8).
UNHURRIED = ("HAKMEM_PURGE_DELAY=3600000", "HAKMEM_PURGE_THREAD=never", "HAKMEM_SS_LRU_SIZE=127", "HAKMEM_THP=never")
# 25 phases of 8 threads: at most a call for each of the 200 threads. 2,160 more short-lived threads: a call for each
# tenth would be one that they make themselves. There are at most a dozen, by size classes that become busy.
SCENARIOS = {
    "random_mixed 200000 4096": Scenario(("bench_random_mixed", 200000, 4096, 1234567), None, 16, True),
    "phases of 200 threads": Scenario(("bench_phases", 25, 8, 2000, 100, 7), None, 200, False, UNHURRIED),
    "2400 threads, not 240": Scenario(
        ("bench_thread_churn", 2400, 100, 4, 7), ("bench_thread_churn", 240, 100, 4, 7), 216, False,
        UNHURRIED),
}


def read_strace(text):
    """Yields (name, arguments, result) of each call in strace -f's log, in order of completion."""
    pending = {}
    for line in text.splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith(UNFINISHED):
            pending[pid] = rest.removesuffix(UNFINISHED)
            continue
        if match := re.match(r"<\.\.\. \w+ resumed>(.*)", rest):
            rest = pending.pop(pid) + match[1]
        if match := re.match(r"(\w+)\((.*)\)\s+= (\S+)", rest):
            yield match[1], match[2], match[3]


def count_memory_calls(text):
    """Memory system calls by name, except glibc's calls for threads' stacks: mappings with MAP_STACK, and calls on
    their addresses."""
    stacks = {}
    counts = Counter()

    def stack_of(address):
        return next((base for base, size in stacks.items() if base <= address < base + size), None)

    for name, arguments, result in read_strace(text):
        parts = arguments.split(", ")
        if name == "mmap" and "MAP_STACK" in arguments and result.startswith("0x"):
            stacks[int(result, 16)] = int(parts[1])
            continue
        if name in ("munmap", "mprotect", "madvise"):
            base = stack_of(int(parts[0], 16))
            if base is not None:
                if name == "munmap":
                    del stacks[base]
                continue
        counts[name] += 1
    return counts


def memory_calls(argv, *env):
    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as folder:
        log = Path(folder, "strace.log")
        settings = [argument for setting in env for argument in ("-E", setting)]
        kinds = ["-e", f"trace={','.join(MEMORY_CALLS)}", "-e", "signal=none"]
        run(["strace", "-f", "-qq", *kinds, *settings, "-o", log, *argv])
        return count_memory_calls(log.read_text())


def measure_syscalls(subject, wanted=None):
    bare = memory_calls(["true"])
    rows = {}

    def under_library(scenario, command):
        program, *arguments = command
        return memory_calls([subject.program(program), *arguments], f"LD_PRELOAD={subject.library}", *scenario.env)

    for name, scenario in SCENARIOS.items():
        if wanted is not None and name not in wanted:
            continue
        whole = under_library(scenario, scenario.run)
        base = under_library(scenario, scenario.base) if scenario.base else bare
        row = {"total": sum(whole.values()) - sum(base.values())}
        row.update((call, whole[call] - base[call]) for call in MEMORY_CALLS)
        rows[name] = {column: str(value) for column, value in row.items()}
    return rows


def syscall_limits(rows):
    return [f"{row}: {value['total']} calls; at most {SCENARIOS[row].limit} are allowed"
            for row, value in rows.items() if int(value["total"]) > SCENARIOS[row].limit]


def freeze_syscalls(rows):
    """The rows as the golden file has them: bounds where thread timing decides the figures."""
    return {row: value if SCENARIOS[row].exact else {**dict.fromkeys(value, "-"), "total": f"<={SCENARIOS[row].limit}"}
            for row, value in rows.items()}
