#!/usr/bin/env python3
"""Compares HAKMEM's deterministic costs with the golden files beside this script.

  fastpath      what malloc, free and hak_free_sized execute on a fast hit: instructions, branches, calls, pushes,
  loads, stores instructions  instructions per operation of every driver at a fixed seed, under callgrind
  kernel        memory system calls and page faults of the same runs
  syscalls      memory system calls of four scenarios, beyond those of a bare process

A cost that differs fails the check, a better one too: golden files are changed by the commit that changes the cost,
with --update. --only takes a pattern (a regular expression) that is searched for in CHECK/ROW: `--only kernel`,
`--only /larson`, `--only instructions/tiny`. --library measures another allocator, for comparison.
"""

import argparse
import platform
import re
import sys
import textwrap
from dataclasses import dataclass

import fast_path
import memory_calls
import small_rows
from subject import HERE, CheckError, default_subject


# Added to what a deviation may be, because binary numbers round.
ROUNDING = 1e-9


def no_limits(_rows):
    return []


def as_measured(rows):
    return rows


@dataclass(frozen=True)
class Check:
    """One golden file: its name, title and rows, and how they are measured.

    A figure agrees when it is the same text, or a number within the tolerance (a share of the golden figure) or within
    the slack of its column. limits: checks that hold whatever the golden file says. freeze: the rows as the file has
    them. A bound (<=N) limits the measured figure, and - is not compared. repeated: rows that --update measures
    small_rows.REPEATS times, because some of their figures vary. notes: lines below the title. attempts: how often a
    differing row is measured. The machine (memory reclaim of file pages, ticks) adds to a figure now and then, a
    change of the library adds each time."""

    file: str
    title: str
    names: tuple
    measure: object
    tolerance: float = 0.0
    slack: tuple = ()
    limits: object = staticmethod(no_limits)
    freeze: object = staticmethod(as_measured)
    repeated: tuple = ()
    notes: tuple = ()
    attempts: int = 1

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
        allowed = max(self.tolerance * abs(float(golden)), dict(self.slack).get(column, 0))
        return abs(float(measured) - float(golden)) <= allowed + ROUNDING


KERNEL_COLUMNS, INSTRUCTION_COLUMNS = ("calls", "faults"), ("program", "library")
CHECKS = {
    "fastpath": Check(
        f"fastpath.{platform.machine()}.txt",
        "What malloc, free and hak_free_sized execute on a fast hit (release build); hits: of the calls watched.",
        fast_path.FASTPATH_ROWS, fast_path.measure_fastpath, limits=fast_path.fastpath_limits),
    "instructions": Check(
        f"instructions.{platform.machine()}.txt",
        "Instructions per operation of the rows of python/hakmem/bench/deterministic.toml, without those of the run "
        "that does nothing; in the whole program, and in the library's own code. May differ by 1 %. <=: does not "
        "repeat, and only the bound is held.",
        tuple(small_rows.ROWS), small_rows.measure_instructions, tolerance=0.01, freeze=small_rows.freeze, attempts=8,
        repeated=tuple(small_rows.varying(INSTRUCTION_COLUMNS)), notes=tuple(small_rows.notes(INSTRUCTION_COLUMNS))),
    "kernel": Check(
        f"kernel.{platform.machine()}.txt",
        "Memory system calls and soft page faults of the same rows, whole runs, beyond those of `true` without HAKMEM; "
        f"calls of glibc for threads' stacks are left out. With threads the least of {small_rows.LEAST_OF} runs. May "
        f"differ by 1 %, faults by {small_rows.FAULTS_SLACK} in any case. <=: does not repeat, and only the bound is "
        "held.",
        tuple(small_rows.ROWS), small_rows.measure_kernel, tolerance=0.01,
        slack=(("faults", small_rows.FAULTS_SLACK),), freeze=small_rows.freeze, attempts=8,
        repeated=tuple(small_rows.varying(KERNEL_COLUMNS)), notes=tuple(small_rows.notes(KERNEL_COLUMNS))),
    "syscalls": Check(
        "syscalls.txt",
        "Memory system calls under HAKMEM beyond those of `true` without it; those of glibc for threads' stacks are "
        "left out. <=: the timing of threads decides the figure, and only the limit is held.",
        tuple(memory_calls.SCENARIOS), memory_calls.measure_syscalls, limits=memory_calls.syscall_limits,
        freeze=memory_calls.freeze_syscalls),
}


# ---- Golden files ----


def is_number(text):
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def is_bound(text):
    """Whether a figure is a bound or -, so not compared for equality."""
    return text == "-" or text.startswith("<=")


def format_rows(title, rows, notes=()):
    header = ["", *next(iter(rows.values()))]
    table = [header] + [[row, *columns.values()] for row, columns in rows.items()]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table]
    heading = [textwrap.fill(text, 118, initial_indent="# ", subsequent_indent="# ") for text in (title, *notes)]
    return "\n".join([*heading, *lines]) + "\n"


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
    frozen = check.freeze(rows)
    found += [f"{row}: no column '{column}' any more" for row in rows for column in golden.get(row, {})
              if column not in rows[row]]
    for row, columns in rows.items():
        for column, measured in columns.items():
            expected = golden.get(row, {}).get(column)
            if expected is None and row in golden:
                found.append(f"{row}: no column '{column}' in the golden file")
            elif expected is not None and is_bound(expected) != is_bound(frozen[row][column]):
                found.append(f"{row}: {column} is {expected} in the golden file, but "
                             + ("repeats now" if is_bound(expected) else "does not repeat"))
            elif expected is not None and not check.agrees(column, expected, measured):
                found.append(f"{row}: {column} expected {expected}, found {measured}{deviation(expected, measured)}")
    return found


def verify(name, subject, wanted=None):
    """Measures, and raises CheckError with a readable report when a figure differs or exceeds a limit."""
    check = CHECKS[name]
    rows = check.measure(subject, wanted)
    problems = list(check.limits(rows))
    if check.path.exists():
        golden = read_rows(check.path)
        for _ in range(check.attempts - 1):
            others = [row for row in rows if row in golden and differences(check, golden, {row: rows[row]})]
            if others:
                rows.update(check.measure(subject, others))
        problems += differences(check, golden, rows)
    else:
        problems.append(f"there is no {check.path}: make it with --update")
    if problems:
        raise CheckError(f"{name} ({check.file}):\n  " + "\n  ".join(problems) + "\n\nmeasured:\n"
                         + format_rows(check.title, rows)
                         + f"\nIf the change is meant: python tests/cost/golden/check.py --update --only {name}")
    return rows


def highest(one, other):
    """The higher figure of two measurements, for each figure."""
    return {row: {column: max(value, other[row][column], key=float) for column, value in columns.items()}
            for row, columns in one.items()}


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
    rows = check.measure(subject, wanted)
    repeated = [row for row in check.repeated if row in rows]
    for _ in range(small_rows.REPEATS - 1 if repeated else 0):
        rows.update(highest({row: rows[row] for row in repeated}, check.measure(subject, repeated)))
    golden = read_rows(check.path) if check.path.exists() else {}
    known = {**golden, **check.freeze(rows)}
    frozen = {row: known[row] for row in check.names if row in known}
    if len({tuple(columns) for columns in frozen.values()}) > 1:
        raise CheckError(f"{name}: {check.file} has other columns now; update all of its rows")
    check.path.write_text(format_rows(check.title, frozen, check.notes))
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
            act(name, subject, rows)
            print(f"{name}: ok", flush=True)
        except CheckError as error:
            print(f"check.py: {error}", file=sys.stderr)
            failed = True
    return sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
