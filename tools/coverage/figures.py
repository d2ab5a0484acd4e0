"""Reads llvm's counters: which lines and branches of src/ have run."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter_c
from tree_sitter import Language, Node, Parser

# Macros whose argument is the condition: the compiler tells their branches as parts of the macro.
HINTS = ("HAK_LIKELY", "HAK_UNLIKELY")


@dataclass
class Source:
    """A file of src/: the count of each line of code, and of both ways of each condition by (line, column)."""

    name: str
    text: list[str]
    lines: dict[int, int] = field(default_factory=dict)
    branches: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)  # of each line that is inside one

    def function(self, line: int) -> str:
        """Returns the name of the function around the line; "" outside of functions, such as in a macro."""
        return self.functions.get(line, "")


@dataclass
class Share:
    """How many of a number there are."""

    run: int = 0
    all: int = 0

    def add(self, counts: list[int]) -> None:
        """Counts things that ran, if their count is not 0."""
        self.run += sum(count > 0 for count in counts)
        self.all += len(counts)

    def percent(self) -> float:
        """Returns the share in percent; 100 of nothing."""
        return 100 * self.run / self.all if self.all else 100.0


def output_of(*command: str | Path) -> str:
    """Returns what a command prints; ends this program if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"coverage: {command[0]} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def merged(counters: Path, profile: Path) -> None:
    """Adds up what all processes have counted."""
    parts = sorted(counters.glob("*.profraw"))
    if not parts:
        raise SystemExit(f"coverage: no counters in {counters}: run the tests of the flavor coverage first")
    listing = profile.with_suffix(".parts")
    listing.write_text("".join(f"{part}\n" for part in parts))
    # The library of a test that was rebuilt leaves counters that no longer fit; llvm says so and takes the others.
    output_of("llvm-profdata", "merge", "-sparse", "-failure-mode=all", "-input-files", listing, "-o", profile)


def binaries(build: Path) -> list[Path]:
    """Returns programs and libraries that together hold every object of src/. All unit tests hold the same core."""
    names = ("bin/test_cycles", "bin/mf2", "bin/test_api", "lib/libhakmem.so", "lib/libhakmem-secure.so",
             "lib/libhakmem-je.so", "lib/libhakmem-tc.so")
    return [build / name for name in names]


def arguments(build: Path, profile: Path) -> list[str]:
    """Returns the arguments of llvm-cov that name the counters and the binaries."""
    first, *others = binaries(build)
    return [str(first), *(f"-object={path}" for path in others), f"-instr-profile={profile}"]


def inside(node: Node) -> range:
    """Returns the numbers of the node's lines."""
    return range(node.start_point[0] + 1, node.end_point[0] + 2)


def structure(source: Source, code: bytes) -> set[int]:
    """Fills in the functions. Returns the lines that a release build has no code for: what only HAK_DEBUG reaches."""
    absent: set[int] = set()

    def name_of(node: Node) -> str:
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "identifier":
            declarator = declarator.child_by_field_name("declarator")
        return (declarator.text or b"").decode() if declarator else ""

    def walk(node: Node) -> None:
        if node.type == "function_definition":
            source.functions.update(dict.fromkeys(inside(node), name_of(node)))
        if node.type == "if_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None and re.match(rb"\(\s*HAK_DEBUG\w*\b(?!.*\|\|)", condition.text or b"", re.DOTALL):
                then = node.child_by_field_name("consequence")
                if then is not None:
                    absent.update(line for line in inside(then) if line != condition.start_point[0] + 1)
        for child in node.children:
            walk(child)

    walk(Parser(Language(tree_sitter_c.language())).parse(code).root_node)
    return absent


def is_constant(condition: str) -> bool:
    """Returns whether the compiler decides the condition: only build constants, such as HAK_SECURE, are in it."""
    return not re.search(r"[a-z]", re.sub(r"\b(sizeof|true|false)\b|\d\w*", "", condition))


def text_at(source: Source, place: list[int]) -> str:
    """Returns the source from (line, column) to (line, column)."""
    line, column, last, end = place[:4]
    lines = source.text[line - 1:last]
    lines[-1] = lines[-1][:end - 1]
    lines[0] = lines[0][column - 1:]
    return " ".join(lines)


def name_below(root: Path, build: Path, path: str) -> str | None:
    """Returns the source's name below src/; None for other files. ccache makes paths relative to the build."""
    full = Path(os.path.normpath(build / path))
    return str(full.relative_to(root / "src")) if full.is_relative_to(root / "src") else None


def read(root: Path, build: Path, profile: Path) -> dict[str, Source]:
    """Returns the sources of src/ by their name below it."""
    sources: dict[str, Source] = {}
    absent: dict[str, set[int]] = {}
    source = None
    for row in output_of("llvm-cov", "export", "-format=lcov", *arguments(build, profile)).splitlines():
        kind, _, value = row.partition(":")
        if kind == "SF":
            name, source = name_below(root, build, value), None
            if name is not None:
                code = (root / "src" / name).read_bytes()
                source = sources.setdefault(name, Source(name, code.decode().splitlines()))
                absent[name] = structure(source, code)
        elif kind == "DA" and source is not None:
            line, count = (int(number) for number in value.split(",")[:2])
            # A macro counts where a function uses it.
            if line not in absent[source.name] and source.function(line):
                source.lines[line] = source.lines.get(line, 0) + count
    told = json.loads(output_of("llvm-cov", "export", "-skip-functions", *arguments(build, profile)))
    for file in told["data"][0]["files"]:
        name = name_below(root, build, file["filename"])
        if name is None:
            continue
        source = sources[name]
        rows = list(file["branches"])
        for expansion in file["expansions"]:
            place = expansion["source_region"]
            if text_at(source, place) in HINTS:
                rows += [[*place[:4], *branch[4:6]] for branch in expansion["branches"]]
        for row in rows:
            line, column, _, _, true, false = row[:6]
            if line not in source.lines or is_constant(text_at(source, row)) and text_at(source, row) not in HINTS:
                continue
            counts = source.branches.setdefault((line, column), [0, 0])
            counts[0] += true
            counts[1] += false
    return sources


def by_folder(sources: dict[str, Source]) -> dict[str, tuple[Share, Share]]:
    """Returns {folder: (lines, branches)}."""
    folders: dict[str, tuple[Share, Share]] = {}
    for name, source in sources.items():
        lines, branches = folders.setdefault(name.split("/")[0], (Share(), Share()))
        lines.add(list(source.lines.values()))
        for counts in source.branches.values():
            branches.add(counts)
    return folders
