"""Runs a program under each tool that the machine has, and collects what they saw."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hakmem import paths
from hakmem.analyze.counters import counting
from hakmem.bench import calls, instructions
from hakmem.bench.runner import environment, judge, launch, parse_pairs, whole_figures
from hakmem.doctor.elf import read_elf
from hakmem.elf import read_elf as read_symbols_of

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.rows import Row
    from hakmem.bench.runner import Conditions
    from hakmem.records import Figures

# The names by which programs call an allocator.
API = re.compile(
    r"_*(libc_|hak_)?(malloc|free|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|pvalloc|"
    r"cfree|malloc_trim|free_sized|free_aligned_sized)$|_Z(nw|na|dl|da)[A-Z]|operator (new|delete)")
LOADER = re.compile(r"/(ld-linux|ld-musl|ld64)[^/]*$")
C_LIBRARY = re.compile(r"/(libc\.so\.6|libc-[\d.]+\.so|libpthread[^/]*|libc\.musl[^/]*)$")
STARTING = re.compile(r"__libc_start|_dl_|call_init")
# The library passes these calls of the program on to the C library.
PASSED_ON = re.compile(r"pthread_create|dlopen")
# Wrappers of system calls: the function above them is of interest.
WRAPPER = re.compile(r"os_")
# What may be said of throughput: "throughput = 27604891 ops/s", "1,234 requests per second".
RATE = re.compile(r"([\d][\d.,]*)\s*([A-Za-z]+)\s*(?:/\s*s(?:ec)?\b|per second)")
FAULT = re.compile(r"^\s*(\d+)\s+([0-9a-f]+) .*? \((.*?)\)\s+[0-9a-f]+ (.*?) \((.*)\)$")
PAGE = os.sysconf("SC_PAGESIZE")
# Stacks cost some ten microseconds a call. After so many seconds what was seen must do.
STACK_SECONDS = 30.0

ALLOCATOR, PROGRAM, LOADING, START = "allocator", "program", "loading", "start"


class RunFailed(RuntimeError):
    """The program did not end as it should."""


@dataclass(frozen=True, order=True)
class Part:
    """Who made a call or a fault. owner: one of the four above. entry: the allocator's outermost function."""

    owner: str
    function: str
    entry: str = ""

    def text(self) -> str:
        """Returns it as a cell."""
        inner = f"{self.entry} > {self.function}" if self.entry and self.entry != self.function else self.function
        return inner if self.owner == ALLOCATOR else f"({self.owner}) {inner}".rstrip()


@dataclass
class Observed:
    """What the runs on one allocator showed. notes: what could not be seen, and why."""

    name: str
    throughput: str = ""
    figures: Figures = field(default_factory=dict)
    calls: dict[str, calls.Tally] = field(default_factory=dict)
    made: Counter[tuple[str, Part, bool]] = field(default_factory=Counter)  # (call, who, whether it gives memory back)
    faults: Counter[Part] = field(default_factory=Counter)
    faults_again: int | None = None  # faults on pages that had been there before
    counters: dict[str, float] = field(default_factory=dict)
    instructions: Figures | None = None
    cycles: dict[str, Any] | None = None
    stats: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        """The processor time of the plain run."""
        seconds: float = self.figures["user_s"] + self.figures["sys_s"]
        return seconds

    @property
    def again(self) -> int:
        """Page faults on pages that had been there before: as perf saw, else those beyond the peak's pages."""
        if self.faults_again is not None:
            return self.faults_again
        beyond: float = self.figures["soft_faults"] - self.figures["peak_rss_kib"] * 1024 / PAGE
        return max(round(beyond), 0)

    def callers(self) -> Iterator[tuple[str, Part, bool, int]]:
        """Yields (call, who, whether it gives memory back, count). If only the first calls were seen, they stand for the
        rest."""
        seen: Counter[str] = Counter()
        for (name, _, _), count in self.made.items():
            seen[name] += count
        for (name, part, back), count in self.made.items():
            whole = self.calls[name].count if name in self.calls else seen[name]
            yield name, part, back, round(count * max(whole / seen[name], 1))

    @property
    def memory_calls(self) -> int | None:
        """How often the program asked for memory or gave it back; None if that is not known."""
        return sum(tally.count for name, tally in self.calls.items() if name in calls.CALLS) if self.calls else None


def own_malloc(program: str) -> str | None:
    """Returns the name of the malloc that a program defines itself; None if it defines none. A preloaded library has no
    effect on a program that does."""
    try:
        with open(program, "rb") as stream:
            facts = read_elf(stream)
    except (OSError, ValueError):
        return None
    if not facts.defines_malloc:
        return None
    return "hakmem" if "hakmem" in facts.allocators else "the program's own"


def functions_of(library: Path) -> frozenset[str]:
    """Returns the names of HAKMEM's functions."""
    symbols = read_symbols_of(library).symbols
    return frozenset(symbols.name(entry) for entry in symbols.table)


def files_of(allocator: Allocator) -> frozenset[str]:
    """Returns the allocator's own files."""
    return instructions.files_of(allocator.library) if allocator.library and shutil.which("ldd") else frozenset()


def part_of(frames: Sequence[tuple[str, str]], files: frozenset[str], names: frozenset[str]) -> Part:
    """Returns who is behind a stack. names: functions of an allocator that is linked into the program."""
    own = [place for place, (file, function) in enumerate(frames)
           if file in files or API.match(function) or (function in names and not C_LIBRARY.search(file))]
    if own and not PASSED_ON.match(frames[own[0]][1]):
        outer = own[-1]
        caller = frames[outer + 1] if outer + 1 < len(frames) else ("", "")
        inner = next((frames[place][1] for place in own if not WRAPPER.match(frames[place][1])), frames[own[0]][1])
        starts = LOADER.search(caller[0]) or STARTING.match(caller[1])
        return Part(START if starts else ALLOCATOR, inner, frames[outer][1])
    for file, function in frames:
        if not (LOADER.search(file) or C_LIBRARY.search(file) or PASSED_ON.match(function)):
            return Part(LOADING, "") if STARTING.match(function) or function == "_start" else Part(
                PROGRAM, function or Path(file).name)
    # The start and the end of a thread are the C library's alone. It shows no names of its own functions.
    inside = bool(frames) and all(C_LIBRARY.search(file) and not STARTING.match(function) for file, function in frames)
    return Part(PROGRAM, "C library") if inside else Part(LOADING, "")


def gives_back(call: calls.Made) -> bool:
    """Returns whether a call gives memory back to the system."""
    return call.name == "munmap" or ("madvise" in call.name and
                                     any(word in call.words for word in ("MADV_DONTNEED", "MADV_FREE", "MADV_COLD")))


class Observer:
    """Runs one program on one allocator, once for each tool."""

    def __init__(self, row: Row, conditions: Conditions, expected: int) -> None:
        self.row, self.conditions, self.expected = row, conditions, expected

    def run(self, allocator: Allocator, *before: str, env: dict[str, str] | None = None) -> tuple[Figures, str, str]:
        """Returns the launcher's pairs, the output and the tail of standard error of a run; raises RunFailed. before:
        words in front of the command."""
        whole, output, tail, unloaded = launch(
            [*before, *self.row.argv(self.conditions.files)],
            env={**environment(self.row, allocator, self.conditions), **(env or {})}, preload=allocator.library,
            limit=self.row.time_limit_s, stdin=self.conditions.input)
        status, detail = judge(self.row, whole, tail, unloaded, self.row.time_limit_s, self.expected)
        if status != "ok":
            raise RunFailed(f"on {allocator.name} it ended so: {detail}")
        return whole, output, tail

    def observe(self, allocator: Allocator, ours: bool, names: frozenset[str], counted: bool) -> Observed:
        """Returns the Observed of the subject. ours: it is HAKMEM. names: its functions, if it is linked into the
        program. counted: count instructions, too."""
        found = self.observe_other(allocator, counted, ours)
        files = files_of(allocator)
        self.stacks(found, allocator, files, names)
        self.faults(found, allocator, files, names)
        if ours:
            self.cycles(found, allocator)
        return found

    def observe_other(self, allocator: Allocator, counted: bool, ours: bool = False) -> Observed:
        """Returns the Observed of an allocator, without what is behind the counts."""
        found = Observed(allocator.name)
        self.plain(found, allocator, ours)
        self.calls(found, allocator)
        if counted:
            env = environment(self.row, allocator, self.conditions)
            found.instructions = instructions.count(
                self.row.argv(self.conditions.files), allocator.library,
                {name: value for name, value in env.items() if name.startswith("HAKMEM_")},
                calls.SLOWER * self.row.time_limit_s)
            if found.instructions["total"] is None:
                found.notes.append(f"instructions: {found.instructions['reason']}")
        return found

    def plain(self, found: Observed, allocator: Allocator, ours: bool) -> None:
        """Runs it under nothing but counters, for figures, throughput and the library's statistics."""
        with tempfile.TemporaryDirectory(prefix="hakmem-stats-") as folder:
            env = {"HAKMEM_SHOW_STATS": "json", "HAKMEM_STATS_FILE": f"{folder}/%p"} if ours else {}
            with counting() as (counts, refused):
                whole, output, tail = self.run(allocator, env=env)
            found.figures, found.counters = whole_figures(whole), counts
            found.throughput = throughput_of(f"{output}\n{tail}")
            reasons: dict[str, list[str]] = {}
            for name, why in refused.items():
                reasons.setdefault(why, []).append(name)
            found.notes += [f"{', '.join(events)}: not counted, {why}" for why, events in reasons.items()]
            if ours:
                found.stats = merged(json.loads(file.read_text()) for file in sorted(Path(folder).iterdir()))
                if found.stats is None:
                    found.notes.append("hits: no statistics; the program ended by a signal, _exit or exec")

    def calls(self, found: Observed, allocator: Allocator) -> None:
        """Counts system calls."""
        if not calls.available():
            found.notes.append("system calls: not counted, strace is not installed")
            return
        limit = calls.SLOWER * self.row.time_limit_s
        status, detail, text = calls.strace(self.row, allocator, self.conditions, ["-c", "-w"], limit, self.expected)
        if status != "ok":
            found.notes.append(f"system calls: not counted, the program did not end well under strace: {detail}")
            return
        found.calls = calls.parse_table(text)

    def stacks(self, found: Observed, allocator: Allocator, files: frozenset[str], names: frozenset[str]) -> None:
        """Reads who made the system calls."""
        if not found.calls:
            return
        _, detail, text = calls.strace(self.row, allocator, self.conditions, ["-k"], STACK_SECONDS, self.expected)
        for made in calls.parse_stacks(text.splitlines()):
            found.made[made.name, part_of(made.frames, files, names), gives_back(made)] += 1
        seen, whole = sum(found.made.values()), sum(tally.count for tally in found.calls.values())
        if not seen:
            found.notes.append(f"who made the system calls: this strace reads no stacks (-k): {detail}")
        elif seen < whole * 0.9:
            found.notes.append(f"who made the system calls: known for the first {seen:,} of {whole:,}")

    def faults(self, found: Observed, allocator: Allocator, files: frozenset[str], names: frozenset[str]) -> None:
        """Reads where page faults happen."""
        if not shutil.which("perf"):
            found.notes.append("page faults by part: not known, perf is not installed")
            return
        with tempfile.TemporaryDirectory(prefix="hakmem-faults-") as folder:
            data = f"{folder}/data"
            try:
                self.run(allocator, "perf", "record", "-q", "-c", "1", "-e", "page-faults", "-d", "-o", data, "--")
            except RunFailed as error:
                found.notes.append(f"page faults by part: not known, {error}")
                return
            text = subprocess.run(["perf", "script", "-i", data, "-F", "pid,addr,ip,sym,dso"], capture_output=True,
                                  text=True, check=False, errors="replace").stdout
        pages = set()
        found.faults_again = 0
        for match in filter(None, map(FAULT.match, text.splitlines())):
            pid, address, of, function, file = match.groups()
            if file in files or (function in names and not C_LIBRARY.search(file)):
                part = Part(ALLOCATOR, function)
            elif of == "//anon" or of == "[heap]":
                part = Part(PROGRAM, "touches memory first")
            else:
                part = Part(LOADING, "files, stacks, variables")
            found.faults[part] += 1
            if of in ("//anon", "[heap]"):
                page = (pid, int(address, 16) // PAGE)
                found.faults_again += page in pages
                pages.add(page)
        if not found.faults:
            found.faults_again = None
            found.notes.append("page faults by part: not known, perf saw none")

    def cycles(self, found: Observed, allocator: Allocator) -> None:
        """Runs it on the library that times every call."""
        library, twin = cycles_library(), cycles_twin(self.row.command[0])
        if library is None:
            found.notes.append("cycles by part: no library that times calls is there (./hakmem build cycles)")
        elif allocator.library is None and twin is None:
            found.notes.append("cycles by part: the program is linked with its own HAKMEM, which times no calls")
        else:
            row = replace(self.row, command=(str(twin), *self.row.command[1:])) if twin else self.row
            with tempfile.TemporaryDirectory(prefix="hakmem-cycles-") as folder:
                err = Path(folder, "err")
                # The profile goes to standard error, of which a run keeps only the tail.
                script = 'exec "$0" "$@" 2>>' + str(err)
                try:
                    Observer(row, self.conditions, self.expected).run(
                        replace(allocator, library=None if twin else str(library)), "/bin/sh", "-c", script,
                        env={"HAKMEM_TINY_PROFILE": "json"})
                except RunFailed as error:
                    found.notes.append(f"cycles by part: {error}")
                    return
                found.cycles = largest_profile(err.read_text(errors="replace"))


def largest_profile(text: str) -> dict[str, Any] | None:
    """Returns the cycle profile of the process with the most calls."""
    profiles = [json.loads(line) for line in text.splitlines() if line.startswith('{"hakmem_cycles"')]
    return max(profiles, key=lambda one: one["coverage"]["malloc"]["calls"], default=None)


def cycles_library() -> Path | None:
    """Returns the library of the flavor cycles, where `hakmem run --profile` has it."""
    own = paths.hakmem_library().parent
    places = (own / "cycles/libhakmem.so", paths.build_folder().parent / "cycles/lib/libhakmem.so")
    return next((place for place in places if place.is_file()), None)


def cycles_twin(program: str) -> Path | None:
    """Returns the program of the flavor cycles that is linked as this program of the build is; None if there is
    none."""
    own = Path(shutil.which(program) or program).resolve()
    twin = paths.build_folder().parent / "cycles/bin" / own.name
    linked = own.parent == paths.build_folder() / "bin" and own_malloc(str(own)) == "hakmem"
    return twin if linked and twin.is_file() else None


def throughput_of(text: str) -> str:
    """Returns the throughput that a program's output tells; "" if it tells none."""
    if (line := re.search(r"^RESULT (.*)$", text, re.MULTILINE)) and (rate := parse_pairs(line[1]).get("ops_per_s")):
        return f"{rate:,.0f} operations a second"
    match = RATE.search(text)
    return f"{match[1]} {match[2]} a second" if match else ""


def merged(reports: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the statistics of all processes: counters added up, classes by size; None if there are none."""
    counters: Counter[str] = Counter()
    classes: dict[int, Counter[str]] = {}
    for report in reports:
        counters.update({name: value for name, value in report["counters"].items() if isinstance(value, int)})
        for one in report["classes"]:
            classes.setdefault(one["block_size"], Counter()).update(
                {name: value for name, value in one.items() if name != "block_size" and isinstance(value, int)})
    return {"counters": dict(counters), "classes": {size: dict(one) for size, one in classes.items()}} \
        if counters else None
