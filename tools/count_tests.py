#!/usr/bin/env python3
"""Adds up JUnit files written by ctest and prints the closing line of ./hakmem test.

A test counts as passed only if it ran and succeeded. A test that ctest could not start counts as failed. Exits 1 if a
test failed or if there was none.
"""
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def read_results(path: Path) -> tuple[list[str], list[str]]:
    """Returns the names of a file's tests as (passed, failed)."""
    passed: list[str] = []
    failed: list[str] = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        (passed if case.get("status") == "run" else failed).append(case.get("name", ""))
    return passed, failed


def main(paths: list[str]) -> int:
    """Prints the failures and the closing line. Returns the exit status."""
    passed_count = 0
    failures: list[str] = []
    for path in map(Path, paths):
        passed, failed = read_results(path)
        passed_count += len(passed)
        failures += [f"{path.parent.name}: {name}" for name in failed]
    for failure in failures:
        print(f"failed: {failure}")
    print(f"{passed_count} passed, {len(failures)} failed")
    return 1 if failures or passed_count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
