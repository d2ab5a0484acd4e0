#!/usr/bin/env python3
"""Adds up what tests did and prints the closing line of ./hakmem test.

    count_tests.py FOLDER...    folders that tools/test_stages.py wrote
    count_tests.py FILE...      results of ctest (JUnit)

A program in C is one test; of a Python test each case is one. A test counts as passed only if it ran and succeeded, and
as skipped if it says why: a Python case by pytest, a program by a line `skipped: NAME: REASON`. A test that ctest could
not start, and a stage that could not run, count as failed. Exits 1 if a test failed or if none passed.
"""
from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

RESULT = "ctest.xml"
LOST = "lost"
LEFT_OUT = "left-out"
# How much is repeated at the end of what a failed test printed: lines, and characters of each.
REPEATED, WIDTH = 12, 200
SKIPPED = re.compile(r"^skipped: (.+)$", re.MULTILINE)


@dataclass
class Counts:
    """What tests did. Tests that failed or were skipped are listed by name, with the reason."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def cases_of(folder: Path, name: str) -> Path:
    """Returns where a Python test of a stage writes what its cases did."""
    return folder / "cases" / f"{name.replace('/', '.')}.xml"


def note_lost(folder: Path, reason: str) -> None:
    """Notes that a stage could not run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)
    (folder / LOST).write_text(reason + "\n")


def note_left_out(folder: Path, reason: str) -> None:
    """Notes what a stage leaves out here, and why."""
    (folder / LEFT_OUT).write_text(reason + "\n")


def failed_in(folder: Path) -> list[str]:
    """Returns the names, as ctest knows them, of a stage's tests that failed."""
    result = folder / RESULT
    if not result.exists():
        return []
    cases = ElementTree.parse(result).getroot().iter("testcase")
    return [case.get("name", "") for case in cases if not succeeded(case)]


def succeeded(case: ElementTree.Element) -> bool:
    """Returns whether ctest took the test for passed, or for skipped by its own exit status."""
    return case.get("status") == "run" or is_skipped(case)


def is_skipped(case: ElementTree.Element) -> bool:
    """Returns whether the test ended with the status that means that it cannot run here."""
    skipped = case.find("skipped")
    return skipped is not None and "SKIP" in skipped.get("message", "")


def with_reason(name: str, printed: list[str]) -> str:
    """Returns a failed test's name and the lines that say why, so that the end of a long run tells it."""
    return "\n    ".join([name, *(line[:WIDTH] for line in printed)])


def add_cases(counts: Counts, path: Path, name: str) -> bool:
    """Adds the cases of a Python test. Returns whether one failed."""
    failed = False
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        words = f"{name}: {case.get('classname', '').replace('.', '/')}::{case.get('name')}"
        skipped = case.find("skipped")
        wrong = next((each for each in case if each.tag in ("failure", "error")), None)
        if wrong is not None:
            counts.failed.append(with_reason(words, (wrong.get("message") or "").splitlines()[:REPEATED]))
            failed = True
        elif skipped is not None:
            counts.skipped.append(f"{words}: {skipped.get('message')}")
        else:
            counts.passed += 1
    return failed


def add_result(counts: Counts, result: Path) -> None:
    """Adds a result of ctest."""
    for case in ElementTree.parse(result).getroot().iter("testcase"):
        name = case.get("name", "")
        printed = case.findtext("system-out") or ""
        cases = cases_of(result.parent, name)
        if cases.exists():
            # A process that crashed after its last case has failed, too.
            if not add_cases(counts, cases, name) and not succeeded(case):
                counts.failed.append(with_reason(name, printed.splitlines()[-REPEATED:]))
            continue
        said = SKIPPED.findall(printed)
        counts.skipped += [f"{name}: {each}" for each in said]
        if is_skipped(case):
            counts.skipped += [] if said else [f"{name}: it does not say why"]
        elif case.get("status") == "run":
            counts.passed += 1
        else:
            counts.failed.append(with_reason(name, printed.splitlines()[-REPEATED:]))


def count(paths: list[Path]) -> Counts:
    """Returns what the tests in all the folders and files did."""
    counts = Counts()
    for path in paths:
        if path.is_file():
            add_result(counts, path)
            continue
        lost = path / LOST
        if lost.exists():
            counts.failed.append(f"stage {path.name}: {lost.read_text().strip()}")
        left_out = path / LEFT_OUT
        if left_out.exists():
            counts.skipped.append(f"stage {path.name}: {left_out.read_text().strip()}")
        if (path / RESULT).exists():
            add_result(counts, path / RESULT)
    return counts


def main(paths: list[str]) -> int:
    """Prints what was skipped, what failed and the closing line. Returns the exit status."""
    counts = count([Path(path) for path in paths])
    for each in counts.skipped:
        print(f"skipped: {each}")
    for each in counts.failed:
        print(f"failed: {each}")
    if counts.failed:
        print("hakmem: './hakmem test --again' runs what failed")
    print(f"{counts.passed} passed, {len(counts.failed)} failed, {len(counts.skipped)} skipped")
    return 1 if counts.failed or counts.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
