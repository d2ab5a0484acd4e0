"""Makes mutants of the core and runs the unit tests and the MF2 model on each (docs/dev/mutation.md).

  build/venv/bin/python tools/mutate --number 50 --seed 1     a sample of src/base, src/os and src/superslab
  build/venv/bin/python tools/mutate --list --number 50       what would be run
  build/venv/bin/python tools/mutate --again                  what the last run has not judged, and its survivors
  build/venv/bin/python tools/mutate --known                  the mutants of known.toml, each with its own test
  build/venv/bin/python tools/mutate --at src/superslab/purge.c:180    all at one line
"""

import argparse
import json
import random
import re
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from builds import Build, Outcome, Test
from candidates import KINDS, Mutant, find_candidates
from reach import Reach

Identity = tuple[str, str, int]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Folders of tests/process whose tests take seconds, and the libraries that they run.
PROCESS_FOLDERS = ("misuse", "hardening", "profile", "guard", "je", "counters", "stats")
LIBRARIES = ("hakmem", "hakmem_secure", "hakmem_je", "hakmem_je_static", "hakmem_tc", "hakmem_override",
             "hakmem_static")


def all_candidates(folders: list[str], kinds: list[str]) -> list[Mutant]:
    """Returns the mutants of the folders' sources, sorted by name and place."""
    files = sorted({
        path for folder in folders
        for path in ([ROOT /
                      folder] if (ROOT /
                                  folder).is_file() else [*(ROOT / folder).glob("*.c"), *(ROOT / folder).glob("*.h")])
    })
    if not files:
        raise SystemExit(f"mutate: no C source in {', '.join(folders)}")
    return [mutant for path in files for mutant in find_candidates(str(path.relative_to(ROOT)), path.read_bytes())
            if mutant.kind in kinds]


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Returns {mutant's key: the reason} for the mutants of equivalent.toml."""
    rows = tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])
    return {(row["file"], row["line"], row["was"], row["to"]): row["why"] for row in rows}


def judge(build: Build, reach: Reach, mutant: Mutant, process: list[Test]) -> Outcome:
    """Runs the tests that run the mutant's line: the unit tests, and if it survives them, those of tests/process."""
    changed = mutant.apply((build.tree / mutant.file).read_bytes())
    near = [reach.of(mutant.file, mutant.line, tests) for tests in (build.tests, process)]
    outcome = build.judge(mutant.file, changed, near[0])
    if outcome.state == "survived" and near[1]:
        outcome = build.judge(mutant.file, changed, near[1])
    if outcome.state == "survived" and not any(near):
        outcome.by = "no test runs the line"
    return outcome


def identity(told: str, text: str, which: int) -> Identity:
    """Returns what a mutant is known by in another run, when its line may have moved."""
    return re.sub(r":\d+ ", " ", told, count=1), text, which


def rows_of(report: Path) -> dict[Identity, dict[str, Any]]:
    """Returns the rows of the last run's report."""
    rows = json.loads(report.read_text()) if report.is_file() else []
    return {identity(row["mutant"], row["line"], row["which"]): row for row in rows}


def row_of(mutant: Mutant, outcome: Outcome) -> dict[str, Any]:
    """Returns the report's row of a mutant."""
    return {
        "mutant": mutant.told(), "line": mutant.text, "which": mutant.which, "was": mutant.was, "to": mutant.to,
        "state": outcome.state, "by": outcome.by, "seconds": round(outcome.seconds, 1)
    }


def run_sample(build: Build, mutants: list[Mutant], report: Path, process: bool) -> bool:
    """Judges the mutants one by one, and last those that take longest: of headers, which rebuild most, and survivors of
    the last run. Returns whether none survived."""
    reasons, rows = equivalents(), rows_of(report)
    build.find_tests()
    for mutant in mutants:  # so that --again knows the sample, whatever the sources are then
        rows.setdefault(identity(mutant.told(), mutant.text, mutant.which), row_of(mutant, Outcome("waiting")))
    report.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    build.measure()
    print(f"{len(build.tests)} tests, {sum(test.seconds for test in build.tests):.0f} s without a mutant", flush=True)
    more = process_tests(build) if process else []
    reach = Reach(build, report.parent)
    reach.prepare([*build.tests, *more])
    survived = {key for key, row in rows.items() if row["state"] == "survived"}
    mutants = sorted(mutants, key=lambda mutant: (mutant.file.endswith(".h"),
                                                  identity(mutant.told(), mutant.text, mutant.which) in survived))
    for number, mutant in enumerate(mutants, 1):
        why = reasons.get(mutant.key(), "")
        outcome = Outcome("equivalent", why) if why else judge(build, reach, mutant, more)
        rows[identity(mutant.told(), mutant.text, mutant.which)] = row_of(mutant, outcome)
        print(f"{number:3}/{len(mutants)} {outcome.state:10} "
              f"{mutant.told()}{'  by ' if outcome.by else ''}{outcome.by}", flush=True)
        report.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    counts = Counter(row["state"] for row in rows.values())
    judged = counts["killed"] + counts["survived"]
    print(f"killed {counts['killed']} of {judged} ({100 * counts['killed'] / max(judged, 1):.0f} %), survived "
          f"{counts['survived']}; "
          f"equivalent {counts['equivalent']} by the list and {counts['same']} by their object code, not built "
          f"{counts['unbuilt']}")
    return counts["survived"] == 0


def pytest_test(build: Build, name: str, seconds: float = 60) -> Test:
    """Returns a file of pytest tests that runs on the scratch build's libraries."""
    return Test(name, ["env", "PYTHONDONTWRITEBYTECODE=1", f"HAKMEM_LIB={build.out}/lib/libhakmem.so",
                       f"HAKMEM_BUILD_DIR={build.out}",
                       f"PYTHONPATH={build.tree}/python", str(ROOT / "build/venv/bin/python"), "-m",
                       "pytest", "-q", "-x", "-p",
                       "no:cacheprovider", str(build.tree / name)], list(LIBRARIES), seconds)


def process_tests(build: Build) -> list[Test]:
    """Returns the tests of programs that run on the library, one for each file."""
    return [pytest_test(build, str(path.relative_to(build.tree))) for folder in PROCESS_FOLDERS
            for path in sorted((build.tree / "tests/process" / folder).glob("test_*.py"))]


def known_test(build: Build, name: str) -> Test:
    """Returns the unit test of a name, or a pytest test."""
    if name.startswith("tests/"):
        return pytest_test(build, name)
    found = [test for test in build.tests if test.name == name]
    if not found:
        raise SystemExit(f"mutate: known.toml names the test {name}, which there is not")
    return found[0]


def run_known(build: Build, only: str) -> bool:
    """Runs each mutant of known.toml with its own test. The test must pass without the mutant and fail with it."""
    rows = [row for row in tomllib.loads((HERE / "known.toml").read_text())["mutant"] if only in row["name"]]
    good = True
    build.find_tests()
    for row in rows:
        if "why" in row:
            print(f"equivalent {row['name']}: {row['why']}", flush=True)
            continue
        source, start = (build.tree / row["file"]).read_text(), time.monotonic()
        if source.count(row["was"]) != 1:
            print(f"STALE      {row['name']}: {row['file']} has the text {source.count(row['was'])} times", flush=True)
            good = False
            continue
        test = known_test(build, row["test"].split("::")[0] if not row["test"].startswith("tests/") else row["test"])
        outcome = build.judge_known(row["file"], source.replace(row["was"], row["to"]).encode(), test)
        good &= outcome.state == "killed"
        print(f"{outcome.state:10} {row['name']}  by {outcome.by}  {time.monotonic() - start:.0f} s", flush=True)
    return good


def known_table() -> str:
    """Returns the table of docs/dev/mutation.md."""
    lines = ["| mutant | source | test that kills it |", "|---|---|---|"]
    for row in tomllib.loads((HERE / "known.toml").read_text())["mutant"]:
        killer = f"`{row['test']}`" if "test" in row else f"none: {row['why']}"
        lines.append(f"| {row['name']} | `{row['file'].removeprefix('src/')}` | {killer} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="folders or files, such as src/pool (src/base src/os src/superslab)")
    parser.add_argument("--number", type=int, default=50, help="how many mutants (50)")
    parser.add_argument("--seed", type=int, default=1,
                        help="which ones (1): the same seed and sources give the same list")
    parser.add_argument("--kind", action="append", choices=KINDS,
                        help="only these kinds; may be repeated (all but `order`)")
    parser.add_argument("--at", metavar="FILE:LINE", help="all mutants at the line, and no sample")
    parser.add_argument("--flavor", choices=("release", "debug", "tsan"), default="release",
                        help="how it is built; memory orders need tsan (release)")
    parser.add_argument("--jobs", type=int, default=2, help="jobs of the build (2)")
    parser.add_argument("--process", action="store_true",
                        help="run the tests of tests/process, too, on what survives the unit tests")
    parser.add_argument("--again", action="store_true",
                        help="go on with the last run: what it has not judged, and its survivors")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--known", nargs="?", const="", metavar="NAME",
                        help="the mutants of known.toml, or those whose name has NAME")
    parser.add_argument("--table", action="store_true", help="print the table of docs/dev/mutation.md, and run nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mutate", help="where it builds (build/mutate)")
    options = parser.parse_args()

    if options.table:
        print(known_table())
        return 0
    build = Build(ROOT, options.folder, options.flavor, options.jobs)
    if options.known is not None:
        build.prepare()
        return 0 if run_known(build, options.known) else 1
    kinds = options.kind or [kind for kind in KINDS if kind != "order" or options.flavor == "tsan"]
    report = options.folder / "report.json"
    if options.at:
        file, line = options.at.rsplit(":", 1)
        mutants = [mutant for mutant in all_candidates([file], kinds) if mutant.line == int(line)]
    else:
        last = sorted({key[0].split(" ")[0] for key in rows_of(report)}) if options.again else []
        mutants = all_candidates(last or options.folders or ["src/base", "src/os", "src/superslab"], kinds)
        total = len(mutants)
        if options.again:
            left = {key for key, row in rows_of(report).items() if row["state"] in ("waiting", "survived")}
            mutants = [mutant for mutant in mutants if identity(mutant.told(), mutant.text, mutant.which) in left]
        else:
            mutants = random.Random(options.seed).sample(mutants, min(options.number, total))
        print(f"{len(mutants)} of {total} mutants, seed {options.seed}")
    if not options.again and not options.list:
        report.unlink(missing_ok=True)
    if options.list:
        for mutant in mutants:
            print(mutant.told())
        return 0
    build.prepare()
    return 0 if run_sample(build, mutants, report, options.process) else 1


if __name__ == "__main__":
    sys.exit(main())
