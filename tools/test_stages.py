#!/usr/bin/env python3
"""Runs the tests of several flavors in stages, for ./hakmem test.

    test_stages.py --list [--all] [--again --builds FOLDER] FLAVOR...
        prints a line for each stage with something to do: its name, the lists of tools/packages that it needs (apart by
        commas, or -), and the flavors that it is the first to need
    test_stages.py --run STAGE [--all] [--again] --place TEXT --began SECONDS --since SECONDS --builds FOLDER
        FLAVOR...
        runs a stage on FOLDER/FLAVOR, which are built; writes FOLDER/tests/STAGE
    test_stages.py --lost STAGE --reason TEXT --builds FOLDER FLAVOR...
        notes that a stage could not run, and why

Without --all, the stages that need more than a build needs are left out, and tests with the label `long`
(tests/CMakeLists.txt says which have it). With --again, only tests run that failed when their stage ran last, and
stages that could not run.

A stage is one run of ctest over the tests of all its flavors, the longest first (COST in tests/CMakeLists.txt), so that
no processor waits at the end of a flavor. A test runs in the first stage that takes it. A Python test also writes what
each of its cases did (tools/count_tests.py adds them up). Exits 1 if a test failed or if there was none. --began is the
time at which ./hakmem test started, --since the time at which it began to prepare this stage, in seconds since the
epoch.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import count_tests

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import machine

SANITIZED = ("asan", "tsan", "ubsan")


@dataclass(frozen=True)
class Stage:
    """Some tests of some flavors, run together."""

    name: str
    what: str
    flavors: tuple[str, ...]
    labels: tuple[str, ...]  # none: every test
    seconds: int  # on two processors, with the builds before it; 0: the stage runs with --all only
    seconds_of_all: int  # the same with --all
    packages: tuple[str, ...] = ()  # lists in tools/packages that --all installs first; without it, tests skip
    waits: bool = False  # its tests often wait, for servers, browsers and timers: one more runs than there are jobs

    def takes(self, labels: Sequence[str]) -> bool:
        """Returns whether the stage takes tests with these labels."""
        return not self.labels or bool(set(self.labels) & set(labels))


LONG = "long"

# Quick tests and tests of the basics come first. A test belongs to the first stage that names its flavor and one of its
# labels.
STAGES = (
    Stage("unit", "the modules on their own", ("release",), ("unit",), 60, 60),
    Stage("behaviour", "the allocator under load, in programs and misused", ("release", "debug", "cycles"),
          ("unit", "stress", "blackbox"), 200, 400, ("behaviour", "programs", "cost"), waits=True),
    Stage("memory", "how much memory is held", ("release",), ("bounds",), 20, 20),
    Stage("sanitizers", "the same with every access checked", SANITIZED, (), 150, 200),
    Stage("cost", "instructions and system calls", ("release",), ("cost",), 0, 70, ("cost",)),
    Stage("programs", "real programs", ("release",), ("programs",), 0, 100, ("programs",), waits=True),
    Stage("compilers", "another compiler, and another processor", ("clang", "aarch64", "riscv64"), (), 0, 150,
          ("compilers",)),
    Stage("tools", "the commands and documents", ("release",), ("tools",), 0, 300, ("tools", "cost", "programs"),
          waits=True),
    Stage("delivery", "packages, and other ways to build", ("release",), ("delivery",), 0, 200,
          ("delivery", "package", "compilers"), waits=True),
    Stage("project", "the sources", ("release",), ("project",), 0, 100, ("project", "compilers")),
)


def stage_of(flavor: str, labels: Sequence[str]) -> Stage:
    """Returns the stage that runs a test of this flavor with these labels."""
    return next(stage for stage in STAGES if flavor in stage.flavors and stage.takes(labels))


def plan(flavors: list[str], everything: bool) -> Iterator[tuple[Stage, list[str]]]:
    """Yields (stage, flavors that it is the first to need) for each stage in which one of the flavors takes part."""
    built: set[str] = set()
    for stage in STAGES:
        mine = [flavor for flavor in flavors if flavor in stage.flavors]
        if mine and (everything or stage.seconds):
            yield stage, [flavor for flavor in mine if flavor not in built]
            built.update(mine)


def plan_again(flavors: list[str], builds: Path) -> Iterator[tuple[Stage, list[str]]]:
    """Yields the same for the stages that failed when they ran last."""
    for stage, _ in plan(flavors, True):
        folder = builds / "tests" / stage.name
        failed = count_tests.failed_in(folder)
        if (folder / count_tests.LOST).exists():
            yield stage, [flavor for flavor in flavors if flavor in stage.flavors]
        elif failed:
            yield stage, sorted({name.partition("/")[0] for name in failed})


def stages_of(given: argparse.Namespace) -> list[tuple[Stage, list[str]]]:
    """Returns the stages of this run of ./hakmem test."""
    return list(plan_again(given.flavors, given.builds) if given.again else plan(given.flavors, given.all))


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


def write_tests(stage: Stage, builds: Path, flavors: list[str], everything: bool, only: set[str] | None) -> int:
    """Writes the stage's tests as a test file of ctest, each named FLAVOR/TEST; only those in `only`, if it is given.
    Returns their number."""
    lines: list[str] = []
    folder = builds / "tests" / stage.name
    for flavor in flavors:
        for test in tests_of(builds / flavor):
            properties = properties_of(test)
            labels = properties.get("LABELS", ())
            name = f"{flavor}/{test['name']}"
            if stage_of(flavor, labels) is not stage:
                continue
            if (LONG in labels and not everything) if only is None else name not in only:
                continue
            # A target that was not built has no command. ctest then fails the test.
            command = test.get("command") or [f"{name} was not built"]
            if "pytest" in command:
                command = [*command, f"--junit-xml={count_tests.cases_of(folder, name)}"]
            lines.append(f"add_test({quoted(name)} {' '.join(map(quoted, command))})")
            lines += [f"set_tests_properties({quoted(name)} PROPERTIES {key} {quoted(value)})"
                      for key, value in properties.items()]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
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


def run(stage: Stage, given: argparse.Namespace) -> bool:
    """Runs the stage. Returns whether all its tests passed. LeakSanitizer stops the process by ptrace."""
    builds: Path = given.builds.resolve()
    mine = [flavor for flavor in given.flavors if flavor in stage.flavors]
    stages = [each for each, _ in stages_of(given)]
    folder = builds / "tests" / stage.name
    lost = (folder / count_tests.LOST).exists()
    only = set(count_tests.failed_in(folder)) if given.again and not lost else None
    count = write_tests(stage, builds, mine, given.all, only)
    if count == 0 and stage.labels == ("unit",):
        count_tests.note_left_out(folder, "cmocka, which runs the unit tests, is not there")
        return True
    times = Times(builds / "tests/times.json", given.all)
    left = sum(times.of(each) for each in stages[stages.index(stage):])
    print(f"hakmem: stage {given.place}, {stage.name}: {stage.what}; {count} tests in {', '.join(mine)}; "
          f"{minutes(time.time() - given.began)} so far, about {minutes(left)} left", flush=True)
    result = folder / count_tests.RESULT
    started = time.time()
    variables = dict(os.environ)
    reason = machine.lacks("ptrace") if "asan" in mine else None
    if reason:
        variables["ASAN_OPTIONS"] = "detect_leaks=0"
        count_tests.note_left_out(folder, f"nothing looks for leaks: {reason}")
    subprocess.run(["ctest", "--test-dir", folder, "--output-on-failure", "--parallel", str(given.jobs + stage.waits),
                    "--test-output-size-passed", "100000", "--output-junit", result], env=variables, check=False)
    if count == 0 or not result.exists():
        print(f"hakmem: ctest wrote no results for stage {stage.name}", file=sys.stderr)
        count_tests.note_lost(folder, "ctest wrote no results")
        return False
    failed = count_tests.failed_in(folder)
    if not failed and only is None and set(mine) == set(stage.flavors) & set(given.flavors):
        times.note(stage, time.time() - given.since)
    print(f"hakmem: stage {stage.name} took {time.time() - started:.0f} s", flush=True)
    return not failed


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser()
    names = [stage.name for stage in STAGES]
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--run", choices=names)
    parser.add_argument("--lost", choices=names)
    parser.add_argument("--place", help="such as '2 of 5'")
    parser.add_argument("--reason")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--began", type=float, default=time.time())
    parser.add_argument("--since", type=float, default=time.time())
    parser.add_argument("--builds", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("flavors", nargs="+")
    given = parser.parse_args()
    if given.list:
        for stage, new in stages_of(given):
            needed = stage.packages if given.all or given.again else ()
            print(stage.name, ",".join(needed) or "-", *new)
        return 0
    if given.lost:
        count_tests.note_lost(given.builds / "tests" / given.lost, given.reason)
        return 0
    return 0 if run(next(each for each in STAGES if each.name == given.run), given) else 1


if __name__ == "__main__":
    sys.exit(main())
