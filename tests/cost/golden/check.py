#!/usr/bin/env python3
"""Compares HAKMEM's deterministic costs with the golden files beside this script.

  fastpath      what malloc, free and hak_free_sized execute on a fast hit: instructions, branches, calls, pushes,
                loads, stores
  sealed        the same in libhakmem-secure
  entries       what the other entry points execute on a hit
  instructions  instructions per operation of every driver at a fixed seed, under callgrind
  kernel        memory system calls and page faults of the same runs
  syscalls      memory system calls of four scenarios, beyond those of a bare process
  coherence     what cores wait for each other, on 64 and 256 virtual cores (hakmem bench coherence)

A cost that differs fails the check, a better one too: golden files are changed by the commit that changes the cost,
with --update. --only takes a pattern (a regular expression) that is searched for in CHECK/ROW: `--only kernel`,
`--only /larson`, `--only instructions/tiny`. --library measures another allocator, for comparison.
"""

import argparse
import os
import platform
import re
import sys
import textwrap
from dataclasses import dataclass

import coherence_counts
import fast_path
import memory_calls
import small_rows
from subject import HERE, CheckError, default_subject, run


def no_limits(_rows):
    return []


def as_measured(rows):
    return rows


@dataclass(frozen=True)
class Check:
    """One golden file: its name, title and rows, and how they are measured.

    A figure agrees when it is the same text, or a number within the tolerance (a share of the golden figure). limits:
    checks that hold whatever the golden file says, with any compiler. freeze: the rows as the file has them. A bound
    (<=N) limits the measured figure, and - is not compared."""

    file: str
    title: str
    names: tuple
    measure: object
    tolerance: float = 0.0
    limits: object = staticmethod(no_limits)
    freeze: object = staticmethod(as_measured)

    @property
    def path(self):
        return HERE / self.file

    def agrees(self, column, golden, measured):
        if golden == "-" or golden == measured:
            return True
        if golden.startswith("<="):
            return float(measured) <= float(golden[2:])
        if not is_number(golden) or not is_number(measured):
            return False
        # The system decides how many pages of the program's files a fault brings, and when it takes them back. They are
        # some 500. The rest are pages that the library touches.
        if column == "faults":
            return float(measured) <= 1.25 * float(golden) + 500
        return abs(float(measured) - float(golden)) <= self.tolerance * abs(float(golden))


CHECKS = {
    "fastpath": Check(
        f"fastpath.{platform.machine()}.txt",
        "What malloc, free and hak_free_sized execute on a fast hit (release build); hits: of the calls watched.",
        fast_path.FASTPATH_ROWS, fast_path.measure_fastpath, limits=fast_path.fastpath_limits),
    "sealed": Check(
        f"sealed.{platform.machine()}.txt", "What the same calls execute in libhakmem-secure, where each block is sealed.",
        fast_path.SEALED_ROWS, fast_path.measure_sealed),
    "entries": Check(
        f"entries.{platform.machine()}.txt",
        "What the other entry points execute in the library for a block of so many bytes, on a hit. realloc: to the "
        "same size; new, delete: C++.",
        fast_path.ENTRY_ROWS, fast_path.measure_entries),
    "instructions": Check(
        f"instructions.{platform.machine()}.txt",
        "Instructions per operation of rows of python/hakmem/bench/deterministic.toml with one thread, without those "
        "of the run that does nothing; in the whole program, and in the library's own code. They repeat, and may differ "
        "by 1 %: a change that costs less needs no update.",
        tuple(small_rows.ROWS), small_rows.measure_instructions, tolerance=0.01),
    "kernel": Check(
        f"kernel.{platform.machine()}.txt",
        "Memory system calls and soft page faults of the same rows, whole runs, beyond those of `true` without HAKMEM. "
        "Faults may be fewer, or a quarter and 500 more: the system brings and takes pages of files.",
        tuple(small_rows.ROWS), small_rows.measure_kernel),
    "syscalls": Check(
        "syscalls.txt",
        "Memory system calls under HAKMEM beyond those of `true` without it; those of glibc for threads' stacks are "
        "left out. <=: the timing of threads decides the figure, and only the limit is held.",
        tuple(memory_calls.SCENARIOS), memory_calls.measure_syscalls, limits=memory_calls.syscall_limits,
        freeze=memory_calls.freeze_syscalls),
    "coherence": Check(
        f"coherence.{platform.machine()}.txt",
        "Accesses that wait for another core's cache line, lock takings, accesses under them, and mapping calls, for "
        "each malloc or free on virtual cores; seed 1. The figures repeat exactly. They are limits, because any change "
        "of the library changes the order of accesses: what was measured, half as much and 0.002 more.",
        coherence_counts.NAMES, coherence_counts.measure_coherence, freeze=coherence_counts.freeze_coherence),
}


# ---- Golden files ----

MADE = "Made with: "


def is_number(text):
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def made_with(subject):
    """What decides the figures beside the source: the compiler's version and the C library's."""
    comments = run(["readelf", "-p", ".comment", subject.library])
    compiler = re.search(r"(GCC|clang).*?(\d+\.\d+\.\d+)", comments)
    return f"{' '.join(compiler.groups()) if compiler else 'another compiler'}, {os.confstr('CS_GNU_LIBC_VERSION')}"


def format_rows(title, rows, made=None):
    header = ["", *next(iter(rows.values()))]
    table = [header] + [[row, *columns.values()] for row, columns in rows.items()]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table]
    texts = [title] if made is None else [title, f"{MADE}{made}"]
    heading = [textwrap.fill(text, 118, initial_indent="# ", subsequent_indent="# ") for text in texts]
    return "\n".join([*heading, *lines]) + "\n"


def read_made(path):
    """What the file's figures were made with."""
    lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("#")]
    return next((line.removeprefix(MADE) for line in lines if line.startswith(MADE)), None)


def read_rows(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    columns = lines[0].split()
    rows = {}
    for line in lines[1:]:
        name, *values = re.split(r" {2,}", line)
        rows[name] = dict(zip(columns, values, strict=True))
    return rows


def deviation(golden, measured):
    """The deviation in per cent, when both are numbers and the golden one is not 0."""
    plain = golden.removeprefix("<=")
    if not is_number(plain) or not is_number(measured) or float(plain) == 0:
        return ""
    return f" ({100 * (float(measured) / float(plain) - 1):+.1f} %)"


def differences(check, golden, rows):
    """The differences from the golden rows, a sentence each."""
    found = [f"{row}: not in the golden file" for row in rows if row not in golden]
    found += [f"{row}: in the golden file only" for row in golden if row not in check.names]
    found += [f"{row}: no column '{column}' any more" for row in rows for column in golden.get(row, {})
              if column not in rows[row]]
    for row, columns in rows.items():
        for column, measured in columns.items():
            expected = golden.get(row, {}).get(column)
            if expected is None and row in golden:
                found.append(f"{row}: no column '{column}' in the golden file")
            elif expected is not None and not check.agrees(column, expected, measured):
                found.append(f"{row}: {column} expected {expected}, found {measured}{deviation(expected, measured)}")
    return found


def verify(name, subject, wanted=None):
    """Measures, and raises CheckError with a readable report when a figure differs or exceeds a limit. Returns why the
    golden figures were not compared, if they are those of another compiler or C library, or None."""
    check = CHECKS[name]
    rows = check.measure(subject, wanted)
    problems, apart = list(check.limits(rows)), None
    if check.path.exists():
        made, here = read_made(check.path), made_with(subject)
        if made == here:
            problems += differences(check, read_rows(check.path), rows)
        else:
            apart = f"{check.file} has figures of {made}; this is {here}"
    else:
        problems.append(f"there is no {check.path}: make it with --update")
    if problems:
        raise CheckError(f"{name} ({check.file}):\n  " + "\n  ".join(problems) + "\n\nmeasured:\n"
                         + format_rows(check.title, rows)
                         + f"\nIf the change is meant: python tests/cost/golden/check.py --update --only {name}")
    return apart


def changes(golden, frozen):
    """The changes that an update makes, a line each."""
    found = [f"{row}: new" for row in frozen if row not in golden]
    found += [f"{row}: gone" for row in golden if row not in frozen]
    for row, columns in frozen.items():
        before = golden.get(row)
        for column, value in columns.items() if before else ():
            old = before.get(column, "-")
            if old != value:
                found.append(f"{row}: {column} {old} -> {value}{deviation(old, value.removeprefix('<='))}")
    return found


def update(name, subject, wanted=None):
    """Writes the golden file and prints its changes. Rows that are not wanted stay as they are."""
    check = CHECKS[name]
    rows, made = check.measure(subject, wanted), made_with(subject)
    if wanted is not None and check.path.exists() and set(wanted) != set(check.names) and read_made(check.path) != made:
        raise CheckError(f"{name}: {check.file} has figures of {read_made(check.path)}; update all of its rows")
    golden = read_rows(check.path) if check.path.exists() else {}
    known = {**golden, **check.freeze(rows)}
    frozen = {row: known[row] for row in check.names if row in known}
    if len({tuple(columns) for columns in frozen.values()}) > 1:
        raise CheckError(f"{name}: {check.file} has other columns now; update all of its rows")
    check.path.write_text(format_rows(check.title, frozen, made))
    changed = changes(golden, frozen)
    print("\n".join([f"{check.file}: {len(changed)} changes", *(f"  {line}" for line in changed)]))
    over = check.limits(rows)
    if over:
        raise CheckError(f"{name}: written, but beyond the limits:\n  " + "\n  ".join(over))


def measure_only(name, subject, wanted=None):
    check = CHECKS[name]
    print(format_rows(check.title, check.measure(subject, wanted)))


# ---- The command ----


def select(patterns):
    """{check: its rows that match a pattern}, without checks that have none. All rows if no pattern is given."""
    try:
        found = {name: [row for row in check.names
                        if not patterns or any(re.search(pattern, f"{name}/{row}") for pattern in patterns)]
                 for name, check in CHECKS.items()}
    except re.error as error:
        raise CheckError(f"--only: {error}") from error
    for pattern in patterns:
        if not any(re.search(pattern, f"{name}/{row}") for name, rows in found.items() for row in rows):
            names = dict.fromkeys(row for check in CHECKS.values() for row in check.names)
            raise CheckError(f"--only {pattern}: no such check or row; there are the checks {', '.join(CHECKS)}, and "
                             f"the rows {', '.join(names)}")
    return {name: rows for name, rows in found.items() if rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[],
                        help="only what it finds in CHECK/ROW; may be given again")
    parser.add_argument("--update", action="store_true", help="write the golden files and print what changes")
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
            return fast_path.show_fastpath(subject)
        selected = select(options.only)
    except CheckError as error:
        sys.exit(f"check.py: {error}")
    act = measure_only if options.measure else update if options.update else verify
    failed = False
    for name, rows in selected.items():
        try:
            apart = act(name, subject, rows)
            print(f"{name}: {apart or 'ok'}", flush=True)
        except CheckError as error:
            print(f"check.py: {error}", file=sys.stderr)
            failed = True
    return sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
