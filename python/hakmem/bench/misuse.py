"""The misuse suite: its cases, what an allocator does with each case, and tables of the outcomes.

A case is a kind of error, a size, a thread and a language. tests/process/hardening/suite has the programs (scene.h says
what they print), the cases (cases.toml) and the outcome of each case on each build of HAKMEM (expected.txt)."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import paths
from hakmem.compat import read_toml

if TYPE_CHECKING:
    from subprocess import CompletedProcess

SUITE = paths.CHECKOUT / "tests/process/hardening/suite"
ATTACKS = paths.CHECKOUT / "tests/process/hardening/attacks"
EXPECTED, PEERS = SUITE / "expected.txt", SUITE / "peers.txt"
TABLE = paths.CHECKOUT / "docs/dev/misuse-table.md"

# The outcomes of a case, best first.
CALL, FAULT, LATER, HARMLESS, LATE, ON, ABSENT = "call", "fault", "later", "harmless", "late", "on", "n/a"
OUTCOMES = {
    CALL: "stopped at the call",
    FAULT: "stopped by a fault of the processor, at the access or in the call",
    LATER: "stopped later, before it did harm",
    HARMLESS: "not stopped, and did no harm that the program looks for",
    LATE: "did harm, then stopped",
    ON: "did harm and ran on",
    ABSENT: "the allocator has no such function",
}
STOPPED = (CALL, FAULT, LATER, LATE)
FAULTS = (signal.SIGSEGV, signal.SIGBUS)
STOPS = (*FAULTS, signal.SIGABRT, signal.SIGILL, signal.SIGTRAP, signal.SIGKILL, signal.SIGSYS)
NO_SUCH_FUNCTION = 77
SECONDS = 60
CHANCES = 7

FLAGS = ("-O1", "-g", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread")
PROGRAMS = {"C": ("misuse.c", "cc", "-std=gnu17"), "C++": ("misuse.cpp", "c++", "-std=c++17")}


class SuiteError(Exception):
    """A program of the suite ended in a way that no case allows."""


@dataclass(frozen=True)
class Case:
    """One misuse: what is done, to a block of which size, in which thread, in C or C++."""

    kind: str
    size: int
    thread: str
    language: str

    @property
    def name(self) -> str:
        """The case as the tables name it."""
        return f"{self.kind} {self.size} {self.thread} {self.language}"


@dataclass(frozen=True)
class Build:
    """An allocator and its settings. library: None for the system's allocator. setting: environment variables.
    by_chance: it places blocks at random, so the outcome of a misuse can vary."""

    name: str
    library: Path | None
    setting: dict[str, str] = field(default_factory=dict)
    by_chance: bool = False


# ---- Cases ----

def load_kinds() -> dict[str, str]:
    """Returns {kind: what it is, in words}."""
    return {kind["name"]: kind["about"] for kind in read_toml(SUITE / "cases.toml")["kinds"]}


def load_cases() -> list[Case]:
    """Returns all cases, in the order of cases.toml."""
    table = read_toml(SUITE / "cases.toml")
    sizes = {"": [], **table["sizes"]}
    default = {"sizes": "every", "other": "", "cxx": "few"}
    cases = []
    for kind in table["kinds"]:
        chosen = {**default, **kind}
        for key, thread, language in (("sizes", "same", "C"), ("other", "other", "C"), ("cxx", "same", "C++")):
            cases += [Case(kind["name"], size, thread, language) for size in sizes[chosen[key]]]
    return cases


# ---- Running ----

def compile_suite(folder: str | Path) -> dict[str, Path]:
    """Compiles the programs into the folder. Returns {language: program}."""
    programs = {}
    for language, (source, compiler, standard) in PROGRAMS.items():
        programs[language] = Path(folder) / source.replace(".", "-")
        compiler = shutil.which(compiler) or {"cc": "gcc", "c++": "g++"}[compiler]
        subprocess.run([compiler, standard, *FLAGS, SUITE / source, "-o", programs[language]], check=True)
    return programs


def outcome_of(status: int, output: str) -> str:
    """Returns the outcome of a case, from the program's exit status and output."""
    words = output.split()
    if status == NO_SUCH_FUNCTION:
        return ABSENT
    if "before" not in words or words[0] != "before":
        raise SuiteError(f"ended with {status} before the misuse, after {words}")
    harmed = "harm" in words
    if status == 0 and words[-1] == "end":
        return ON if harmed else HARMLESS
    if status == -signal.SIGALRM:
        return "hangs"
    if status > 0 or -status not in STOPS:
        raise SuiteError(f"ended with {status} after {words}")
    if "after" in words:
        return LATE if harmed else LATER
    return FAULT if -status in FAULTS else CALL


def environment(build: Build) -> dict[str, str]:
    """Returns the environment for a run on the build."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("HAKMEM_", "LD_", "MALLOC_", "GLIBC_TUNABLES"))}
    if build.library:
        kept["LD_PRELOAD"] = str(build.library)
    return {**kept, **build.setting}


def run_case(programs: dict[str, Path], case: Case, build: Build, env: dict[str, str] | None = None) -> str:
    """Runs one case on the build and returns the outcome."""
    command = [str(programs[case.language]), case.kind, str(case.size), case.thread]
    ended = subprocess.run(command, env=env or environment(build), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, errors="replace", timeout=SECONDS, check=False)
    try:
        return outcome_of(ended.returncode, ended.stdout)
    except SuiteError as error:
        raise SuiteError(f"{build.name}: {case.name}: {error}; it said {ended.stderr[:300]!r}") from None


def is_as_expected(outcome: str, expected: str) -> bool:
    """Returns whether every outcome found is among the expected ones."""
    return set(outcome.split("/")) <= set(expected.split("/"))


def settle(build: Build, expected: dict[str, str], found: dict[str, str],
           run_one: Callable[[str], str]) -> dict[str, str]:
    """Returns the outcomes with chance removed. On a build that places blocks at random, an unexpected outcome may
    be rare: it counts only if most further runs are unexpected too. run_one(name) runs the case again."""
    settled = dict(found)
    for name, outcome in found.items() if build.by_chance else ():
        want = expected.get(name, "-")
        if want != "-" and not is_as_expected(outcome, want):
            again = [run_one(name) for _ in range(CHANCES)]
            if sum(is_as_expected(each, want) for each in again) > CHANCES / 2:
                settled[name] = want
    return settled


def settle_suite(programs: dict[str, Path], build: Build, expected: dict[str, str],
                 found: dict[str, str]) -> dict[str, str]:
    """Settles the outcomes of the suite."""
    cases = {case.name: case for case in load_cases()}
    return settle(build, expected, found, lambda name: run_case(programs, cases[name], build))


def run_suite(programs: dict[str, Path], build: Build, cases: Sequence[Case] | None = None, rounds: int = 1,
              tell: Callable[[], object] | None = None) -> dict[str, str]:
    """Returns {case's name: outcome}. If rounds differ, the outcome is all of them, sorted and joined by "/"."""
    env = environment(build)
    outcomes: dict[str, str] = {}
    for case in cases or load_cases():
        seen = {run_case(programs, case, build, env) for _ in range(rounds)}
        outcomes[case.name] = "/".join(sorted(seen))
        if tell:
            tell()
    return outcomes


# ---- Attacks ----

def compile_attacks(folder: str | Path) -> Path:
    """Compiles the program of attacks into the folder and returns its path."""
    program = Path(folder) / "attacks"
    subprocess.run([shutil.which("cc") or "gcc", "-std=gnu17", *FLAGS, ATTACKS / "attacks.c", "-o", program],
                   check=True)
    return program


def start_attacks(program: Path, build: Build, *words: str) -> CompletedProcess[str]:
    """Runs the program of attacks to its end."""
    return subprocess.run([program, *words], env=environment(build), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", timeout=SECONDS, check=False)


def run_attack(program: Path, technique: str, build: Build) -> str:
    """Runs one technique on the build and returns the outcome."""
    ended = start_attacks(program, build, technique)
    try:
        return outcome_of(ended.returncode, ended.stdout)
    except SuiteError as error:
        raise SuiteError(f"{build.name}: {technique}: {error}") from None


def run_attacks(program: Path, build: Build, rounds: int = 1) -> dict[str, str]:
    """Returns {technique: outcome}, as run_suite does. The program lists its techniques."""
    return {technique: "/".join(sorted({run_attack(program, technique, build) for _ in range(rounds)}))
            for technique in start_attacks(program, build).stdout.split()}


def settle_attacks(program: Path, build: Build, expected: dict[str, str], found: dict[str, str]) -> dict[str, str]:
    """Settles the outcomes of the attacks."""
    return settle(build, expected, found, lambda technique: run_attack(program, technique, build))


def read_attacks() -> dict[str, dict[str, str]]:
    """Returns {build: {technique: outcome}} as expected."""
    return read_table(ATTACKS / "expected.txt", keys=1)


def write_attacks(columns: dict[str, dict[str, str]]) -> None:
    """Writes the table of expected outcomes of the attacks."""
    techniques = dict.fromkeys(technique for outcomes in columns.values() for technique in outcomes)
    rows = [["technique", *columns]]
    rows += [[technique, *(column.get(technique, "-") for column in columns.values())] for technique in techniques]
    (ATTACKS / "expected.txt").write_text("\n".join([
        "# What each build does with each attack, in the words of ../suite/expected.txt. ../suite/expect.py --update "
        "writes it.",
        *aligned(rows)]) + "\n")


# ---- Tables as text: a row a case, a column a build ----

def read_table(path: Path, keys: int = 4) -> dict[str, dict[str, str]]:
    """Returns {build: {case's name: outcome}}. The first `keys` words of a line are the name."""
    if not path.exists():
        return {}
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {build: {" ".join(line[:keys]): line[keys + number] for line in lines[1:]}
            for number, build in enumerate(lines[0][keys:])}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows as lines whose columns stand below each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def write_table(path: Path, columns: dict[str, dict[str, str]], comment: Iterable[str]) -> None:
    """Writes a table of outcomes, one line for each case."""
    heading = [f"# {line}" for line in comment]
    heading += [f"#   {word:<9}{about}" for word, about in OUTCOMES.items()]
    cases = [case.name for case in load_cases()]
    rows = [["kind", "size", "thread", "language", *columns]]
    rows += [[*case.split(), *(column.get(case, "-") for column in columns.values())] for case in cases]
    path.write_text("\n".join([*heading, *aligned(rows)]) + "\n")


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Returns a sentence for each case whose outcome is unexpected, or that only one side has."""
    told = []
    for case in dict.fromkeys([*expected, *found]):
        want, got = expected.get(case, "-"), found.get(case)
        if got is None:
            told.append(f"{case}: expected '{want}', and there is no such case any more")
        elif not is_as_expected(got, want):
            told.append(f"{case}: expected '{want}', found '{got}'")
    return told


# ---- The summary ----

def is_stopped(outcome: str) -> bool:
    """Returns whether the allocator stopped the misuse in every round."""
    return all(each in STOPPED for each in outcome.split("/"))


def is_kept_from_harm(outcome: str) -> bool:
    """Returns whether the misuse did no harm in any round."""
    return all(each in (CALL, FAULT, LATER, HARMLESS) for each in outcome.split("/"))


def totals(outcomes: dict[str, str]) -> tuple[int, int, int]:
    """Returns (cases stopped, cases kept from harm, cases)."""
    known = [outcome for outcome in outcomes.values() if outcome not in (ABSENT, "-")]
    return sum(map(is_stopped, known)), sum(map(is_kept_from_harm, known)), len(known)


def by_kind(outcomes: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Returns [(kind, its outcomes)] in the order of the cases."""
    names = [case.name for case in load_cases() if case.name in outcomes]
    return [(kind, [outcomes[name] for name in group])
            for kind, group in itertools.groupby(names, key=lambda name: name.split()[0])]


def summarize(outcomes: dict[str, str]) -> dict[str, str]:
    """Returns {kind: `6 call, 2 later`}: how often each outcome came, best first. Outcomes that vary come last."""
    order = list(OUTCOMES)
    summary = {}
    for kind, found in by_kind(outcomes):
        counts = sorted(
            Counter(found).items(), key=lambda pair: (order.index(pair[0]) if pair[0] in order else 99, pair[0]))
        summary[kind] = ", ".join(f"{number} {outcome}" for outcome, number in counts)
    return summary


def table_text(columns: dict[str, dict[str, str]]) -> str:
    """Returns one table of docs/dev/misuse-table.md."""
    kinds, parts = load_kinds(), {name: summarize(outcomes) for name, outcomes in columns.items()}
    head = ["kind", "is", *columns]
    sums = {name: totals(outcomes) for name, outcomes in columns.items()}
    rows = [["", "**stopped**", *(f"**{stopped} of {of}**" for stopped, _, of in sums.values())],
            ["", "**kept from harm**", *(f"**{kept} of {of}**" for _, kept, of in sums.values())]]
    rows += [[f"`{kind}`", about, *(part.get(kind, "") for part in parts.values())] for kind, about in kinds.items()]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


COLUMNS = {
    "default": "`libhakmem.so`",
    "secure": "`libhakmem-secure.so`",
}
PAGE = """# What each build does with each misuse

This page shows what HAKMEM's builds and other allocators do with each kind of misuse. `hakmem bench security` measures
it. [misuse.md](../misuse.md) explains the results of the default build, [hardening.md](../hardening.md) those of the
others.

`tests/process/hardening/suite` misuses memory in {cases} ways: {kinds} kinds of errors, blocks of 16 bytes to 40 MB,
in the thread that allocated and in another, by C's functions and C++'s operators. Each program then looks for harm as
an attacker would, before the allocator has time to notice. The numbers count cases.

| word | the misuse was |
|---|---|
{words}
"Stopped" is `call`, `fault`, `later` and `late`; "kept from harm" is `call`, `fault`, `later` and `harmless`. If
chance decides, the table has all outcomes, with `/` between them.

`tests/process/hardening` checks the outcome of each case on each build of HAKMEM, also of cases that are not caught.
[expected.txt](../../tests/process/hardening/suite/expected.txt) lists the cases.

## HAKMEM

| column | is |
|---|---|
{columns}
{ours}"""
OTHERS = """
## Others

{ran}
[peers.txt](../../tests/process/hardening/suite/peers.txt) has each case.

{others}"""


def page() -> str:
    """Returns the text of docs/dev/misuse-table.md, made from expected.txt and peers.txt."""
    words = "".join(f"| `{word}` | {about} |\n" for word, about in OUTCOMES.items())
    ours = read_table(EXPECTED)
    columns = "".join(f"| {name} | {COLUMNS[name]} |\n" for name in ours)
    text = PAGE.format(cases=len(load_cases()), kinds=len(load_kinds()), words=words, columns=columns,
                       ours=table_text(ours))
    peers = read_table(PEERS)
    if peers:
        first = PEERS.read_text().splitlines()[0].removeprefix("# ")
        ran = textwrap.fill(f"`hakmem bench security` ran the same programs on others ({first}).", 120,
                            break_on_hyphens=False)
        text += OTHERS.format(ran=ran, others=table_text(peers))
    return text


# ---- Builds of ours ----

def own_builds(library: str | Path | None = None) -> list[Build]:
    """Returns this tree's builds: the library, and the secure one if the source has it. Raises SuiteError if a library
    that the source has is not built."""
    library = Path(library or paths.hakmem_library())
    secure = library.with_name("libhakmem-secure.so")
    builds = [Build("default", library)]
    if "hakmem-secure" in (paths.CHECKOUT / "cmake/HakmemLibraries.cmake").read_text():
        builds.append(Build("secure", secure, by_chance=True))
    for build in builds:
        if build.library and not build.library.is_file():
            raise SuiteError(f"{build.library} is not there: build it (./hakmem build)")
    return builds
