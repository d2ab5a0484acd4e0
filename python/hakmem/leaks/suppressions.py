"""Suppressions: known leaks that are not reported. A file may mix LeakSanitizer's and valgrind's formats.

LeakSanitizer: a line `leak:PATTERN`. The pattern may match the function, the source file or the module of any frame.
`*` stands for anything, `^` and `$` for the ends.
Valgrind: a block in braces with a name, `Memcheck:Leak`, and the frames from the allocation function outwards:
`fun:`, `obj:`, `src:`, with `*` and `?`. `...` stands for any number of frames."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from hakmem.clean import clean
from hakmem.foreign import open_regular

# Limits: bytes of a file, characters of a line, frames of a block. Far more than people write.
FILE_MOST, LINE_MOST, FRAMES_MOST = 4 << 20, 4096, 256
KINDS = {"definite", "indirect", "possible", "reachable", "all", "none"}
LOST = {"definite", "indirect", "possible", "all"}
# How a block of valgrind's may name the allocation function. Valgrind's stacks begin with it, ours with its caller.
ALLOCATORS = ("malloc", "calloc", "realloc", "reallocarray", "memalign", "posix_memalign", "aligned_alloc",
              "valloc", "pvalloc",
              "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
              "_ZnamSt11align_val_t",
              "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t", "operator new(unsigned long)",
              "operator new[](unsigned long)")
PRELOADED = "vgpreload_memcheck-amd64-linux.so"


@dataclass(frozen=True)
class Caller:
    """A frame as patterns see it. names: the function's name in the source and the linker's name."""

    names: tuple[str, ...]
    file: str = ""
    line: int = 0
    module: str = ""


THE_ALLOCATOR = Caller(ALLOCATORS, module=PRELOADED)


class Glob:
    """A pattern with `*`, and with `?` for one character if `one` is set. Its parts are searched one after the
    other, so a pattern takes at most one pass over the text for each part."""

    def __init__(self, text: str, one: bool = False, anywhere: bool = False) -> None:
        first, last = not anywhere, not anywhere
        if anywhere and text.startswith("^"):
            text, first = text[1:], True
        if anywhere and text.endswith("$"):
            text, last = text[:-1], True
        parts = text.split("*")
        self.first, self.last = first, last
        self.parts = [
            re.compile(re.escape(part).replace(r"\?", ".") if one else re.escape(part), re.DOTALL) for part in parts
        ]
        self.lengths = [len(part) for part in parts]

    def matches(self, text: str) -> bool:
        """Returns whether the pattern matches the text."""
        at, final = 0, len(self.parts) - 1
        for number, (part, length) in enumerate(zip(self.parts, self.lengths)):
            if number == final and self.last:
                start = len(text) - length
                return start >= at and not (number == 0 and self.first and start) and part.match(text,
                                                                                                 start) is not None
            found = part.match(text, at) if number == 0 and self.first else part.search(text, at)
            if not found:
                return False
            at = found.end()
        return True


@dataclass
class Suppression(ABC):
    """One suppression of a file. name: how reports call it."""

    name: str
    place: str
    blocks: int = field(default=0, init=False)
    bytes: int = field(default=0, init=False)

    @abstractmethod
    def matches(self, callers: Sequence[Caller]) -> bool:
        """Returns whether it covers a stack."""


@dataclass
class OfSanitizer(Suppression):
    """A `leak:` line."""

    pattern: Glob

    def matches(self, callers: Sequence[Caller]) -> bool:
        """Returns whether the pattern matches any frame."""
        return any(self.pattern.matches(text) for caller in callers
                   for text in (*caller.names, caller.file, caller.module) if text)


@dataclass
class OfValgrind(Suppression):
    """A block in braces. lines: (kind, Glob) from the innermost; None is `...`."""

    lines: list[tuple[str, Glob] | None] = field(default_factory=list)

    def matches(self, callers: Sequence[Caller]) -> bool:
        """Returns whether the lines match the stack from the allocation function outwards."""
        callers = (THE_ALLOCATOR, *callers)
        # The places in the stack at which the lines so far can end.
        places = {0}
        for line in self.lines:
            if line is None:
                places = set(range(min(places), len(callers) + 1))
            else:
                places = {place + 1 for place in places if place < len(callers) and fits(line, callers[place])}
            if not places:
                return False
        return True


def fits(line: tuple[str, Glob], caller: Caller) -> bool:
    """Returns whether a line matches a frame."""
    kind, pattern = line
    if kind == "fun":
        return any(pattern.matches(name) for name in caller.names)
    if kind == "obj":
        return pattern.matches(caller.module)
    file = caller.file.rpartition("/")[2]
    return any(pattern.matches(text) for text in (file, f"{file}:{caller.line}", caller.file,
                                                  f"{caller.file}:{caller.line}"))


class Wrong(click.UsageError):
    """A file is no valid list of suppressions."""


def read_suppressions(paths: Iterable[Path]) -> list[Suppression]:
    """Returns the Suppressions of several files, in their order; raises Wrong with the file and line of an error."""
    return [one for path in paths for one in of_text(text_of(path), clean(str(path)))]


def text_of(path: Path) -> str:
    """Returns the text of a file."""
    try:
        file = open_regular(path)
        if file is None:
            raise Wrong(f"--suppress: {clean(str(path))} is no file that can be read")
        with file:
            if file.size > FILE_MOST:
                raise Wrong(
                    f"--suppress: {clean(str(path))} has {file.size:,} bytes; no list of suppressions has more than "
                    f"{FILE_MOST:,}"
                )
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        raise Wrong(f"--suppress: {clean(str(path))}: {error.strerror}") from error


def of_text(text: str, path: str) -> list[Suppression]:
    """Returns the Suppressions of a file's text."""
    found: list[Suppression] = []
    block: list[tuple[int, str]] | None = None
    begun = 0
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if len(line) > LINE_MOST:
            raise wrong(path, number, f"a line of {len(line):,} characters")
        if not line or line.startswith("#"):
            continue
        if block is not None:
            if line == "}":
                found += of_block(block, path, begun)
                block = None
            else:
                block.append((number, line))
        elif line == "{":
            block, begun = [], number
        elif line.startswith("leak:") and line[5:].strip("*^$ "):
            found.append(OfSanitizer(clean(line), f"{path}:{number}", pattern=Glob(line[5:].strip(), anywhere=True)))
        else:
            raise wrong(path, number, f"`{clean(line, 80)}` is neither `leak:PATTERN` nor valgrind's `{{`")
    if block is not None:
        raise wrong(path, begun, "the block has no `}`")
    return found


def wrong(path: str, number: int, what: str) -> Wrong:
    """Returns the error for a line."""
    return Wrong(f"--suppress: {path}:{number}: {what}")


def of_block(block: list[tuple[int, str]], path: str, begun: int) -> list[OfValgrind]:
    """Returns [OfValgrind] for a block; [] if it is about another tool or error."""
    if len(block) < 2 or not re.fullmatch(r"[\w,]+:\w+", block[1][1]):
        raise wrong(path, begun, "the block has no line such as `Memcheck:Leak` behind its name")
    (_, name), (_, about), *rest = block
    tools, _, kind = about.partition(":")
    if "Memcheck" not in tools.split(",") or kind != "Leak":
        return []  # the block is for another tool or another error
    made = OfValgrind(clean(name), f"{path}:{begun}")
    for number, line in rest:
        word, colon, pattern = line.partition(":")
        if line == "...":
            made.lines.append(None)
        elif word == "match-leak-kinds" and colon:
            kinds = {one.strip() for one in pattern.split(",")}
            if not kinds <= KINDS:
                raise wrong(path, number, f"no kind of leak: {clean(', '.join(sorted(kinds - KINDS)), 80)}")
            if not kinds & LOST:
                return []
        elif word in ("fun", "obj", "src") and pattern:
            made.lines.append((word, Glob(pattern.strip(), one=True)))
        else:
            raise wrong(path, number, f"`{clean(line, 80)}` is none of fun:, obj:, src:, ... and match-leak-kinds:")
    if not made.lines:
        raise wrong(path, begun, "the block has no frames")
    if len(made.lines) > FRAMES_MOST:
        raise wrong(path, begun, f"the block has {len(made.lines):,} frames")
    return [made]
