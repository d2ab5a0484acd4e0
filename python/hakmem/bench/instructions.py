"""Counts the instructions of a run, in the whole program and in the allocator, with one run under callgrind.

Uses only the standard library, because tests/cost/golden counts with it too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.bench.runner import NOT_PRELOADED, parse_pairs
from hakmem.phrases import signal_name

if TYPE_CHECKING:
    from hakmem.records import Figures

LIMIT_S = 120.0
TAIL = 300

# Files that are part of no allocator, though an allocator may need them.
SYSTEM_FILE = re.compile(
    r"/(ld-linux[^/]*|linux-vdso|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))(-[\d.]+)?\.so[\d.]*$|^linux-vdso")
# Code that callgrind finds in no file: an allocator has moved its own code.
NO_FILE = "???"
# Counting starts anew at these calls. Otherwise a child's count would include what its parent did before.
FORKS = ("fork", "fork@@GLIBC_2.2.5", "_Fork", "__libc_fork")
# The functions that count as the allocator if it is a part of the C library.
SYSTEM_CALLED = re.compile(
    r"(malloc|free|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc)(@.*)?$")
SYSTEM_LIBRARY = re.compile(r"/(libc\.so\.6|libc-[\d.]+\.so)$")
OBJECT = re.compile(r"(c?)ob=\((\d+)\)(?: (.+))?$")
FUNCTION = re.compile(r"(c?)fn=\((\d+)\)(?: (.+?))?(?:'\d+)?$")
COST = re.compile(r"(?:[+-]?\d+|\*) (\d+)$")
VALGRIND_LINE = re.compile(r"^(==|--)\d+(==|--) ?")


def read_profile(lines: Iterable[str], libraries: frozenset[str] = frozenset()) -> tuple[int, int, bool]:
    """Reads a callgrind profile. Returns (instructions in all, instructions in the allocator, whether the allocator is
    there).

    The allocator's instructions are those that its libraries execute themselves. Without libraries the allocator is
    the C library, whose file holds much else: then its instructions are those of calls into it from other files,
    callees included."""
    files: dict[str, str] = {}
    functions: dict[str, str] = {}
    here = called = ""
    callee: str | None = None
    total = inside = 0
    inclusive = False
    for line in lines:
        if match := OBJECT.match(line):
            if match[3]:
                files[match[2]] = match[3]
            if match[1]:
                callee = files[match[2]]
            else:
                here = files[match[2]]
        elif match := FUNCTION.match(line):
            if match[3]:
                functions[match[2]] = match[3]
            if match[1]:
                called = functions[match[2]]
        elif line.startswith("calls="):
            inclusive = True
        elif match := COST.match(line):
            cost = int(match[1])
            if not inclusive:
                total += cost
                inside += cost if libraries and (here in libraries or here == NO_FILE) else 0
            else:
                # Without a cob= line the call stays in its own file.
                into = callee or here
                if not libraries and into != here and SYSTEM_LIBRARY.search(into) and SYSTEM_CALLED.match(called):
                    inside += cost
                callee, inclusive = None, False
    return total, inside, not libraries or not libraries.isdisjoint(files.values())


def environment(preload: str | None, env: dict[str, str] | None) -> dict[str, str]:
    """Returns the run's variables. They are the same wherever it is counted, because start-up code reads them all.
    Only the given ones steer an allocator. LD_BIND_NOW binds addresses before main, so that first calls cost no more
    than others."""
    kept = {"PATH": os.defpath, "LC_ALL": "C", "LD_BIND_NOW": "1", **(env or {})}
    if preload:
        kept["LD_PRELOAD"] = preload
    return kept


def files_of(preload: str) -> frozenset[str]:
    """Returns an allocator's files: the libraries, and what they need that is not the system's."""
    files = set()
    for part in preload.split(":"):
        files.add(str(Path(part).resolve()))
        listing = subprocess.run(["ldd", part], env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                                 capture_output=True, text=True, check=False)
        for needed in re.findall(r"=> (/\S+)", listing.stdout):
            if not SYSTEM_FILE.search(needed):
                files.add(str(Path(needed).resolve()))
    return frozenset(files)


def unfit(reason: str) -> Figures:
    """Returns a count without figures, for a run that could not be counted."""
    return {"total": None, "library": None, "ops": None, "reason": reason}


def last_words(text: str) -> str:
    """Returns the end of the program's standard error, or of valgrind's if the program wrote nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not VALGRIND_LINE.match(line)]
    return " ".join(own or [VALGRIND_LINE.sub("", line) for line in lines])[-TAIL:]


def ended(status: int) -> str:
    """Returns an exit status or a signal as a text."""
    return f"exit status {status}" if status >= 0 else signal_name(-status)


def count(command: Iterable[str | Path], preload: str | Path | None = None, env: dict[str, str] | None = None,
          limit: float = LIMIT_S) -> Figures:
    """Counts one run. Returns {"total", "library", "ops"}: instructions of the program and its children, instructions
    in the allocator, and the operations that a driver reports (None for other programs). If the run does not end well
    under callgrind, they are None and "reason" says why.

    preload: the libraries as in LD_PRELOAD; None for the system's allocator. env: variables of the run. One thread
    runs at a time, each for equally long, and addresses are the same each time."""
    tools: dict[str, str] = {}
    for program in ("valgrind", "setarch", "ldd"):
        file = shutil.which(program)
        if file is None:
            return unfit(f"{program} is not installed (tools/packages/bench.txt lists what is needed)")
        tools[program] = file
    preload = str(preload) if preload else None
    libraries = files_of(preload) if preload else frozenset()
    with tempfile.TemporaryDirectory(prefix="hakmem-instructions-") as folder:
        words = [tools["setarch"], "-R", tools["valgrind"], "--command-line-only=yes", "--tool=callgrind",
                 "--trace-children=yes", "--fair-sched=yes", *(f"--dump-before={name}" for name in FORKS),
                 f"--callgrind-out-file={folder}/profile.%p", *map(str, command)]
        try:
            done = subprocess.run(words, env=environment(preload, env), stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return unfit(f"no end after {limit:g} s under callgrind")
        if unloaded := NOT_PRELOADED.search(done.stderr):
            return unfit(unloaded[0].decode(errors="replace"))
        if done.returncode != 0:
            said = last_words(done.stderr.decode(errors="replace"))
            return unfit(f"{ended(done.returncode)} under callgrind: {said}")
        total = inside = 0
        present = False
        for profile in sorted(Path(folder).glob("profile.*")):
            with open(profile, encoding="utf-8", errors="replace") as lines:
                of_all, of_library, here = read_profile(map(str.rstrip, lines), libraries)
            total, inside, present = total + of_all, inside + of_library, present or here
    if total == 0:
        return unfit("callgrind's profile holds no costs")
    if not present:
        return unfit(f"{preload} is not in the profile: it was not preloaded")
    result = re.search(r"^RESULT (.*)$", done.stdout.decode(errors="replace"), re.MULTILINE)
    return {"total": total, "library": inside, "ops": parse_pairs(result[1]).get("ops") if result else None}
