#!/usr/bin/env python3
"""Runs the tests of several flavors in stages, for ./hakmem test.

    test_stages.py --list FLAVOR...
        prints a line for each stage with something to do: its name, and the flavors that it is the first to need
    test_stages.py --run STAGE [--all] --began SECONDS --builds FOLDER FLAVOR...
        runs a stage on FOLDER/FLAVOR, which are built; writes FOLDER/tests/STAGE/ctest.xml

Without --all, tests with the label `long` are left out (tests/CMakeLists.txt says which have it).

A stage is one run of ctest over the tests of all its flavors, the longest first (COST in tests/CMakeLists.txt), so that
no processor waits at the end of a flavor. A test runs in the first stage that takes it. Exits 1 if a test failed or if
there was none. --began is the time at which ./hakmem test started, in seconds since the epoch.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SANITIZED = ("asan", "tsan", "ubsan", "aarch64")


@dataclass(frozen=True)
class Stage:
    """Some tests of some flavors, run together."""

    name: str
    what: str
    flavors: tuple[str, ...]
    labels: tuple[str, ...]  # none: every test
    seconds: int  # on two processors, without the builds before it
    seconds_of_all: int  # the same with --all
    waits: bool = False  # its tests often wait, for servers, browsers and timers: one more runs than there are jobs

    def takes(self, labels: Sequence[str]) -> bool:
        """Returns whether the stage takes tests with these labels."""
        return not self.labels or bool(set(self.labels) & set(labels))


LONG = "long"

# Quick tests and tests of the basics come first. A test belongs to the first stage that names its flavor and one of its
# labels.
STAGES = (
    Stage("unit", "the modules on their own", ("release",), ("unit",), 9, 9),
    Stage("behaviour", "the allocator under load, misuse and real programs", ("release", "debug", "cycles", "clang"),
          ("unit", "stress", "blackbox"), 233, 800, waits=True),
    Stage("sanitizers", "the same with every access checked, and on another processor", SANITIZED, (), 124, 400),
    Stage("cost", "instructions, system calls and memory", ("release",), ("cost",), 50, 70),
    Stage("tools", "the commands, packages and documents", ("release",), (), 111, 780, waits=True),
)


def stage_of(flavor: str, labels: Sequence[str]) -> Stage:
    """Returns the stage that runs a test of this flavor with these labels."""
    return next(stage for stage in STAGES if flavor in stage.flavors and stage.takes(labels))


def plan(flavors: list[str]) -> Iterator[tuple[Stage, list[str]]]:
    """Yields (stage, flavors that it is the first to need) for each stage in which one of the flavors takes part."""
    built: set[str] = set()
    for stage in STAGES:
        mine = [flavor for flavor in flavors if flavor in stage.flavors]
        if mine:
            yield stage, [flavor for flavor in mine if flavor not in built]
            built.update(mine)


def properties_of(test: dict[str, Any]) -> dict[str, Any]:
    """Returns {name: value} of a test's properties."""
    return {each["name"]: each["value"] for each in test.get("properties", ())}


def tests_of(folder: str | Path) -> list[dict[str, Any]]:
    """Returns what ctest knows about a build's tests."""
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, check=True)
    tests: list[dict[str, Any]] = json.loads(listed.stdout)["tests"]
    return tests


def quoted(value: object) -> str:
    """Returns a value as a literal argument in CMake's language."""
    if isinstance(value, list):
        value = ";".join(map(str, value))
    if isinstance(value, bool):
        value = "ON" if value else "OFF"
    return f"[==[{value}]==]"


def write_tests(stage: Stage, builds: Path, flavors: list[str], folder: Path, everything: bool) -> int:
    """Writes the stage's tests as a test file of ctest, each named FLAVOR/TEST. Returns their number."""
    lines: list[str] = []
    for flavor in flavors:
        for test in tests_of(builds / flavor):
            properties = properties_of(test)
            labels = properties.get("LABELS", ())
            if stage_of(flavor, labels) is not stage or (LONG in labels and not everything):
                continue
            # A target that was not built has no command. ctest then fails the test.
            command = test.get("command") or [f"{flavor}/{test['name']} was not built"]
            name = quoted(f"{flavor}/{test['name']}")
            lines.append(f"add_test({name} {' '.join(map(quoted, command))})")
            lines += [f"set_tests_properties({name} PROPERTIES {key} {quoted(value)})"
                      for key, value in properties.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    return sum(line.startswith("add_test(") for line in lines)


def minutes(seconds: float) -> str:
    """Returns seconds as a text in minutes."""
    return f"{max(0, round(seconds / 60))} min"


class Times:
    """How long each stage took in this checkout's last complete run of it, with --all or without. Before the first run,
    how long it took elsewhere on two processors."""

    def __init__(self, path: Path, everything: bool) -> None:
        self.path = path
        self.everything = everything
        self.known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def of(self, stage: Stage) -> int:
        """Returns the expected seconds of a stage."""
        return self.known.get(self.key(stage), stage.seconds_of_all if self.everything else stage.seconds)

    def key(self, stage: Stage) -> str:
        """Returns the name under which the stage's seconds are kept."""
        return f"{stage.name} --all" if self.everything else stage.name

    def note(self, stage: Stage, seconds: float) -> None:
        """Keeps the seconds that a stage took."""
        self.known[self.key(stage)] = round(seconds)
        self.path.write_text(json.dumps(self.known) + "\n")


def failed_in(result: Path) -> list[str]:
    """Returns the names of the failed tests of a result file."""
    cases = ElementTree.parse(result).getroot().iter("testcase")
    return [case.get("name", "") for case in cases if case.get("status") != "run"]


def run(stage: Stage, began: float, builds: Path, flavors: list[str], jobs: int, everything: bool) -> bool:
    """Runs the stage. Returns whether all its tests passed."""
    mine = [flavor for flavor in flavors if flavor in stage.flavors]
    stages = [each for each, _ in plan(flavors)]
    folder = builds / "tests" / stage.name
    count = write_tests(stage, builds, mine, folder, everything)
    times = Times(builds / "tests/times.json", everything)
    left = sum(times.of(each) for each in stages[stages.index(stage):])
    print(f"hakmem: stage {stages.index(stage) + 1} of {len(stages)}, {stage.name}: {stage.what}; "
          f"{count} tests in {', '.join(mine)}; {minutes(time.time() - began)} so far, about {minutes(left)} left",
          flush=True)
    result = folder / "ctest.xml"
    result.unlink(missing_ok=True)
    started = time.time()
    subprocess.run(["ctest", "--test-dir", folder, "--output-on-failure", "--parallel", str(jobs + stage.waits),
                    "--output-junit", result], check=False)
    if count == 0 or not result.exists():
        print(f"hakmem: ctest wrote no results for stage {stage.name}", file=sys.stderr)
        return False
    failed = failed_in(result)
    if not failed and set(mine) == set(stage.flavors) & set(flavors):
        times.note(stage, time.time() - started)
    print(f"hakmem: stage {stage.name} took {time.time() - started:.0f} s", flush=True)
    return not failed


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--run", choices=[stage.name for stage in STAGES])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--began", type=float, default=time.time())
    parser.add_argument("--builds", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("flavors", nargs="+")
    given = parser.parse_args()
    if given.list:
        for stage, new in plan(given.flavors):
            print(stage.name, *new)
        return 0
    stage = next(each for each in STAGES if each.name == given.run)
    return 0 if run(stage, given.began, given.builds.resolve(), given.flavors, given.jobs, given.all) else 1


if __name__ == "__main__":
    sys.exit(main())
