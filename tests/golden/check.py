#!/usr/bin/env python3
"""Compares HAKMEM's deterministic costs with the golden files beside this script.

  fastpath      what malloc and free execute on a fast hit: instructions, branches, calls, pushes, loads, stores
  instructions  instructions per operation of random mixed, under callgrind
  syscalls      memory system calls of three scenarios, beyond those of a bare process

A cost that differs fails the check, a better one too: golden files are changed by the commit that changes the cost,
with --update. --library measures another allocator, for comparison.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RUN_SECONDS = 120

PRIVATE_VARIABLE = re.compile(r"^(HAKMEM_|BENCH_|LD_|MALLOC_|GLIBC_TUNABLES|VALGRIND)")


class CheckError(Exception):
    """A measurement could not be made, or says something else than the golden file."""


@dataclass(frozen=True)
class Subject:
    """What is measured: the library, and the folder with the benchmark programs."""

    library: Path
    programs: Path

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            raise CheckError(f"{path} is not there; build it with ./hakmem build")
        return str(path)


def default_subject(build=None, library=None):
    build = Path(build or os.environ.get("HAKMEM_BUILD_DIR", REPOSITORY / "build/release")).absolute()
    library = Path(library or os.environ.get("HAKMEM_LIB", build / "lib/libhakmem.so")).resolve()
    if not library.exists():
        raise CheckError(f"{library} is not there; build it with ./hakmem build")
    return Subject(library, build / "bin")


def run(argv, extra=None):
    """Runs a command in an environment without allocator settings and returns its standard output."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env.update(LC_ALL="C", **(extra or {}))
    argv = [str(argument) for argument in argv]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except FileNotFoundError:
        raise CheckError(f"{argv[0]} is not installed (tools/packages-bench.txt lists what is needed)") from None
    except subprocess.TimeoutExpired:
        raise CheckError(f"{' '.join(argv)}: no end after {RUN_SECONDS} s") from None
    if done.returncode != 0:
        raise CheckError(f"{' '.join(argv)}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


# ---- The fast path ----

FASTPATH_SIZES = (16, 64, 256, 1024)
FASTPATH_COLUMNS = ("instructions", "branches", "jumps", "calls", "pushes", "loads", "stores", "hits")
NO_READ_OF_TARGET = re.compile(r"^(v?mov|set|lea|v?stmxcsr|fst)")
NO_WRITE_OF_TARGET = re.compile(r"^(cmp|test|bt[bwlq]?$|ucomis|comis|push|call|jmp|prefetch|mul|imul|div|idiv)")
PREFIX = re.compile(r"^(?:(?:lock|rep|repz|repnz|data16|cs|ds|es|ss|notrack|bnd) )+")


def count_instruction(text, counts):
    """Adds one instruction in objdump's AT&T syntax to the counts. Loads and stores are those of memory operands;
    what call, push, pop and ret do to the stack is not among them."""
    text = PREFIX.sub("", text.split("#")[0].split("<")[0].strip())
    name, _, operands = text.partition(" ")
    counts["instructions"] += 1
    if name.startswith("jmp"):
        counts["jumps"] += 1
    elif name.startswith("j"):
        counts["branches"] += 1
    counts["calls"] += name.startswith("call")
    counts["pushes"] += name.startswith("push")
    if name.startswith(("lea", "nop", "endbr")):
        return
    parts = re.split(r",(?![^(]*\))", operands.strip()) if operands.strip() else []
    memory = [("(" in part or "%fs:" in part or "%gs:" in part) for part in parts]
    if not any(memory):
        return
    is_target = memory[-1]
    counts["loads"] += not is_target or not NO_READ_OF_TARGET.match(name)
    counts["stores"] += is_target and not NO_WRITE_OF_TARGET.match(name)


def disassemble(library):
    """{offset: instruction} of the whole library."""
    listing = run(["objdump", "-d", "--no-show-raw-insn", "-w", library])
    found = re.findall(r"^\s+([0-9a-f]+):\t(.+?)\s*$", listing, re.MULTILINE)
    return {int(offset, 16): text for offset, text in found}


def trace_calls(subject):
    """[(function, size, offsets)] of each watched call."""
    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as folder:
        tracer = Path(folder, "fastpath_trace")
        flags = ["-std=gnu17", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror"]
        run(["cc", *flags, HERE / "fastpath_trace.c", "-o", tracer])
        output = run([tracer, subject.library, *FASTPATH_SIZES])
    calls = []
    for line in output.splitlines():
        function, size, _, *offsets = line.split(" ")
        if not offsets or not offsets[0]:
            raise CheckError(f"{function}({size}) runs nothing in {subject.library}: it is not the program's malloc")
        calls.append((function, int(size), tuple(int(offset, 16) for offset in offsets[0].split(","))))
    return calls


def fast_hits(subject):
    """{(function, size): (offsets, "hits/calls")}: the sequence that most of the calls took."""
    groups = {}
    for function, size, offsets in trace_calls(subject):
        groups.setdefault((function, size), []).append(offsets)
    hits = {}
    for key, sequences in groups.items():
        common, number = Counter(sequences).most_common(1)[0]
        hits[key] = (common, f"{number}/{len(sequences)}")
    return hits


def measure_fastpath(subject):
    instructions = disassemble(subject.library)
    rows = {}
    for (function, size), (offsets, hits) in sorted(fast_hits(subject).items(), reverse=True):
        counts = Counter()
        for offset in offsets:
            count_instruction(instructions[offset], counts)
        counts["hits"] = hits
        rows[f"{function} {size}"] = {column: str(counts[column]) for column in FASTPATH_COLUMNS}
    return rows


def show_fastpath(subject):
    instructions = disassemble(subject.library)
    for (function, size), (offsets, hits) in sorted(fast_hits(subject).items()):
        print(f"{function}({size}), {hits} calls, {len(offsets)} instructions:")
        for offset in offsets:
            print(f"  {offset:7x}  {instructions[offset]}")


# ---- Instructions per operation ----

MIXED_OPERATIONS = 1_000_000
MIXED_LIVE = (256, 4096, 100_000)
MIXED_SEED = 1234567
# What would else depend on the machine's speed and memory.
SAME_EVERYWHERE = {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_ARENA_SIZE": "8G"}


def read_callgrind(path, library):
    """(instructions in all, instructions in the library itself) of a callgrind profile."""
    names, here, total, inside = {}, None, 0, 0
    inclusive = False
    for line in path.read_text().splitlines():
        if match := re.match(r"ob=\((\d+)\)(?: (.+))?$", line):
            if match[2]:
                names[match[1]] = match[2]
            here = names[match[1]]
        elif match := re.match(r"cob=\((\d+)\)(?: (.+))?$", line):
            if match[2]:
                names[match[1]] = match[2]
        elif line.startswith("calls="):
            inclusive = True
        elif match := re.match(r"(?:[+-]?\d+|\*) (\d+)$", line):
            cost = int(match[1])
            if not inclusive:
                total += cost
                inside += cost if here == str(library) else 0
            inclusive = False
    if total == 0:
        raise CheckError(f"no costs in callgrind's profile {path}")
    return total, inside


def callgrind(subject, *argv):
    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as folder:
        profile = Path(folder, "callgrind.out")
        run(["setarch", "-R", "valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *argv],
            {"LD_PRELOAD": str(subject.library), **SAME_EVERYWHERE})
        return read_callgrind(profile, subject.library)


def measure_instructions(subject):
    program = subject.program("bench_random_mixed")
    rows = {}
    for live in MIXED_LIVE:
        whole = callgrind(subject, program, MIXED_OPERATIONS, live, MIXED_SEED)
        start = callgrind(subject, program, 0, live, MIXED_SEED)
        every, inside = ((w - s) / MIXED_OPERATIONS for w, s in zip(whole, start))
        rows[f"random_mixed {live}"] = {"program": f"{every:.2f}", "library": f"{inside:.2f}"}
    return rows


# ---- Memory system calls ----

MEMORY_CALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore")
UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True)
class Scenario:
    """A run, the one whose calls are subtracted (None: a bare process), the most that may remain, and whether that is
    the same each time; where the timing of threads decides, only the limit is held. env: variables of the run."""

    run: tuple
    base: tuple | None
    limit: int
    exact: bool
    env: tuple = ()


# 25 phases of 8 threads: one call for each of the 200 threads, and 50. Threads that come and go: nothing that grows
# with their number; what may remain are size classes that have become busy enough to be populated by whole slabs.
# 2400 threads take long enough for the purge delay to pass; what time costs is not what threads cost.
SCENARIOS = {
    "random_mixed 200000 4096": Scenario(("bench_random_mixed", 200000, 4096, MIXED_SEED), None, 16, True),
    "phases of 200 threads": Scenario(("bench_phases", 25, 8, 2000, 100, 7), None, 250, False),
    "240 threads, not 24": Scenario(
        ("bench_thread_churn", 240, 100, 4, 7), ("bench_thread_churn", 24, 100, 4, 7), 8, False),
    "2400 threads, not 240": Scenario(
        ("bench_thread_churn", 2400, 100, 4, 7), ("bench_thread_churn", 240, 100, 4, 7), 12, False,
        ("HAKMEM_PURGE_DELAY=3600000",)),
}


def read_strace(text):
    """Yields (name, arguments, result) of each call in strace -f's log, in the order of completion."""
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
    """Memory system calls by name, without those by which glibc makes, changes and returns threads' stacks: the
    mappings with MAP_STACK, and what is done to their addresses."""
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


def measure_syscalls(subject):
    bare = memory_calls(["true"])
    rows = {}

    def under_library(scenario, command):
        program, *arguments = command
        return memory_calls([subject.program(program), *arguments], f"LD_PRELOAD={subject.library}", *scenario.env)

    for name, scenario in SCENARIOS.items():
        whole = under_library(scenario, scenario.run)
        base = under_library(scenario, scenario.base) if scenario.base else bare
        row = {"total": sum(whole.values()) - sum(base.values())}
        row.update((call, whole[call] - base[call]) for call in MEMORY_CALLS)
        rows[name] = {column: str(value) for column, value in row.items()}
    return rows


# ---- Golden files ----

def equal_text(_row, _column, golden, measured):
    return golden == measured


def within_one_percent(_row, _column, golden, measured):
    return abs(float(measured) - float(golden)) <= 0.01 * float(golden)


def fastpath_limits(rows):
    return [f"{row}: {value[column]} {column} on a fast hit; there must be none"
            for row, value in rows.items() for column in ("calls", "pushes") if value[column] != "0"]


def syscall_limits(rows):
    over = [f"{row}: {value['total']} calls; at most {SCENARIOS[row].limit} are allowed"
            for row, value in rows.items() if int(value["total"]) > SCENARIOS[row].limit]
    return over + [f"{row}: calls mincore" for row, value in rows.items() if int(value["mincore"]) > 0]


def freeze_syscalls(rows):
    """The rows as the golden file has them: limits where the timing of threads decides the figures."""
    return {row: value if SCENARIOS[row].exact else {**dict.fromkeys(value, "-"), "total": f"<={SCENARIOS[row].limit}"}
            for row, value in rows.items()}


@dataclass(frozen=True)
class Check:
    """One golden file: its name, how it is measured, when a figure agrees, which limits hold in any case, and which
    of the figures are kept."""

    file: str
    title: str
    measure: object
    agrees: object
    limits: object = staticmethod(lambda rows: [])
    freeze: object = staticmethod(lambda rows: rows)


CHECKS = {
    "fastpath": Check(
        f"fastpath.{platform.machine()}.txt",
        "What malloc and free execute on a fast hit (release build); hits: of the calls watched.",
        measure_fastpath, equal_text, fastpath_limits),
    "instructions": Check(
        f"instructions.{platform.machine()}.txt",
        f"Instructions per operation of random mixed, {MIXED_OPERATIONS} operations at so many slots, without those of "
        "a run of none; in the whole program, and in the library's own code. May differ by 1 %.",
        measure_instructions, within_one_percent),
    "syscalls": Check(
        "syscalls.txt",
        "Memory system calls under HAKMEM beyond those of `true` without it; those of glibc for threads' stacks are "
        "left out. <=: the timing of threads decides the figure, and only the limit is held.",
        measure_syscalls, equal_text, syscall_limits, freeze_syscalls),
}


def format_rows(title, rows):
    header = ["", *next(iter(rows.values()))]
    table = [header] + [[row, *columns.values()] for row, columns in rows.items()]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table]
    heading = textwrap.fill(title, 118, initial_indent="# ", subsequent_indent="# ")
    return heading + "\n" + "\n".join(lines) + "\n"


def read_rows(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    columns = lines[0].split()
    rows = {}
    for line in lines[1:]:
        name, *values = re.split(r" {2,}", line)
        rows[name] = dict(zip(columns, values, strict=True))
    return rows


def differences(check, golden, rows):
    found = [f"{row}: not in the golden file" for row in rows.keys() - golden.keys()]
    found += [f"{row}: in the golden file only" for row in golden.keys() - rows.keys()]
    for row, columns in rows.items():
        for column, measured in columns.items():
            expected = golden.get(row, {}).get(column)
            if expected is None and row in golden:
                found.append(f"{row}: no column '{column}' in the golden file")
            elif expected is not None and not check.agrees(row, column, expected, measured):
                found.append(f"{row}: {column} {expected} -> {measured}")
    return found


def verify(name, subject):
    """Measures and raises CheckError with a readable account when anything differs or a limit is passed."""
    check = CHECKS[name]
    path = HERE / check.file
    rows = check.measure(subject)
    problems = list(check.limits(rows))
    if path.exists():
        problems += differences(check, read_rows(path), check.freeze(rows))
    else:
        problems.append(f"there is no {path.relative_to(REPOSITORY)}: make it with --update")
    if problems:
        raise CheckError(f"{name} ({check.file}):\n  " + "\n  ".join(problems) + "\n\nmeasured:\n"
                         + format_rows(check.title, rows)
                         + f"\nIf the change is meant: python tests/golden/check.py --update --only {name}")
    return rows


def update(name, subject):
    check = CHECKS[name]
    rows = check.measure(subject)
    (HERE / check.file).write_text(format_rows(check.title, check.freeze(rows)))
    print(format_rows(check.title, rows))
    over = check.limits(rows)
    if over:
        raise CheckError(f"{name}: written, but beyond the limits:\n  " + "\n  ".join(over))


def measure_only(name, subject):
    check = CHECKS[name]
    print(format_rows(check.title, check.measure(subject)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CHECKS, action="append", help="this check alone; may be given again")
    parser.add_argument("--update", action="store_true", help="write the golden files from what is measured")
    parser.add_argument("--measure", action="store_true", help="print what is measured and compare nothing")
    parser.add_argument("--show", action="store_true", help="print the instructions of the fast hits and stop")
    parser.add_argument("--build", metavar="DIR", help="build folder (default build/release)")
    parser.add_argument("--library", metavar="FILE", help="another allocator, with --measure or --show")
    options = parser.parse_args()
    if options.library and not (options.measure or options.show):
        parser.error("--library needs --measure or --show: the golden files are HAKMEM's")
    try:
        subject = default_subject(options.build, options.library)
        if options.show:
            return show_fastpath(subject)
    except CheckError as error:
        sys.exit(f"check.py: {error}")
    act = measure_only if options.measure else update if options.update else verify
    failed = False
    for name in options.only or CHECKS:
        try:
            act(name, subject)
            print(f"{name}: ok")
        except CheckError as error:
            print(f"check.py: {error}", file=sys.stderr)
            failed = True
    return sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
