#!/usr/bin/env python3
"""Checks that the tree follows the rules of src/README.md.

  includes   a file under src/ includes its own folder or a lower one; the public header only from the top
  symbols    no object calls upward, so that folders form no cycle (from the objects' symbols, by nm)
  circles    the files of one folder form no cycle either (from the same symbols)
             both in the objects of each library that is compiled in its own way
  hops       in src/README.md's tables each function calls the one in the next row (from the call graph, call_graph.py)
  one file   no two sources have a function of one name, because the one-file source joins them (from the call graph)
  dead code  the library itself uses every function and every object of static storage (from the call graph)
  names      every `file.c:name` in the documents is a file that defines that name
  labels     every label of an invariant has one statement, and the table of docs/dev/design.md names its file
  length     no source file is longer than it should be
  orders     every atomic object says how threads access it, and every access keeps to that (memory_orders.py)
  python     a module of python/hakmem imports only its own package or a lower layer (python_layers.py)
  links      every relative link in the documents leads somewhere

Prints one line for each violation and exits 1 when there is any.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from call_graph import OUTSIDE, CallGraph, read_calls
from memory_orders import check_orders
from python_layers import check_python

# The layers of src/, lowest first.
LAYERS = ["base", "config", "os", "options", "superslab", "pool", "harden", "profile", "front", "observe",
          "api", "je", "tc"]
RANK = {layer: rank for rank, layer in enumerate(LAYERS)}

# Any layer may use observe/counters. It may use only these layers itself, so that no cycle forms.
LEAF = "observe/counters"
LEAF_MAY_USE = {"base", "config"}

PUBLIC_USERS = {"front", "observe", "api", "je", "tc"}
NOT_IN_ONE_FILE = {"je", "tc"}
MAX_LINES = 700

# The libraries, with patterns of the CMake targets whose objects they have. libhakmem-je has its own calls of front/
# (src/je/entry.h) in place of hakmem_hak_api and hakmem_libc_api. libhakmem-secure compiles all anew (HAK_SECURE). A
# source that two targets compile is the later pattern's.
SHARED = "hakmem_(core|os_linux|api|runtime_api|shared_api|static_api|cycles_unused)"
VARIANTS = {
    "ordinary": (SHARED, "hakmem_(hak|libc|tc)_api"),
    "je": (SHARED, "hakmem_je_(libc_)?api"),
    "secure": ("hakmem_(os_linux|static_api|cycles_unused)", "hakmem_secure_(core|api|shared)"),
}

# {source: names that it needs}, {name: sources that define it}, {label: [(path, line) where it is stated]}
Needs = dict[str, set[str]]
Homes = dict[str, list[str]]
Stated = dict[str, list[tuple[Path, int]]]


@dataclass(frozen=True)
class Violation:
    """A violation of a rule: where, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def source_files(root: Path) -> Iterator[Path]:
    """Yields the files of src/ and include/, as paths relative to root."""
    for folder in ("src", "include"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".hpp"):
                yield path.relative_to(root)


def layer_of(path: str | Path) -> str:
    """Returns the layer of a path relative to src/, such as pool/slab.c."""
    return Path(path).parts[0]


def is_leaf(path: str | Path) -> bool:
    """Returns whether a path is observe/counters."""
    return str(Path(path).with_suffix("")) == LEAF


def may_use(user: str | Path, used: str | Path) -> bool:
    """Returns whether src file `user` may include or call src file `used`. Paths are relative to src/."""
    if is_leaf(user):
        return is_leaf(used) or layer_of(used) in LEAF_MAY_USE
    return is_leaf(used) or RANK[layer_of(used)] <= RANK[layer_of(user)]


# ---- Includes ----


def check_include(root: Path, user: Path, target: str) -> str | None:
    """Returns what is wrong if src file `user` includes `target`; None if it may."""
    if target.startswith("hakmem/"):
        if not (root / "include" / target).is_file():
            return f"includes {target}, which does not exist"
        if layer_of(user) not in PUBLIC_USERS:
            return f"includes the public {target}; only {', '.join(sorted(PUBLIC_USERS))} may"
        return None
    if not (root / "src" / target).is_file() or ".." in Path(target).parts:
        return f'includes "{target}", which is no path from src/'
    if layer_of(target) not in RANK:
        return f'includes "{target}" of no known layer'
    if not may_use(user, target):
        return f'includes "{target}" of a higher layer'
    return None


def check_includes(root: Path) -> Iterator[Violation]:
    """Yields a violation for each forbidden include."""
    for path in source_files(root):
        if path.parts[0] != "src":
            continue
        user = path.relative_to("src")
        if layer_of(user) not in RANK:
            yield Violation(str(path), f"is in no known layer: {' '.join(LAYERS)}")
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<(hakmem/[^>]+)>)', line)
            if match:
                problem = check_include(root, user, match.group(1) or match.group(2))
                if problem:
                    yield Violation(f"{path}:{number}", problem)


# ---- Symbols ----


def find_objects(root: Path, build: Path, patterns: tuple[str, ...]) -> dict[str, Path]:
    """Returns {source relative to src/: its object in a CMake build tree} of a variant's targets."""
    objects = {}
    for pattern in patterns:
        for path in sorted(build.glob("CMakeFiles/*.dir/src/**/*.o")):
            parts = path.parts[len(build.parts):]
            source = Path(*parts[parts.index("src") + 1:]).with_suffix("")
            if (root / "src" / source).is_file() and re.fullmatch(pattern, parts[1].removesuffix(".dir")):
                objects[str(source)] = path
    return objects


def read_objects(objects: dict[str, Path], nm: str) -> tuple[Needs, Homes]:
    """Returns {source: global names that its object needs} and {name: sources that define it}."""
    needs: Needs = {source: set() for source in objects}
    homes: Homes = {}
    if not objects:
        return needs, homes
    sources = {str(path): source for source, path in objects.items()}
    output = subprocess.run([nm, "-g", "-A", *sources], check=True, capture_output=True, text=True).stdout
    for path, kind, name in re.findall(r"^(.*):(?:[0-9a-f]+| +) (\w) (\S+)$", output, re.M):
        if kind in "Uwv":
            needs[sources[path]].add(name)
        else:
            homes.setdefault(name, []).append(sources[path])
    return needs, homes


def check_built(root: Path, build: Path, objects: set[str]) -> Iterator[Violation]:
    """Yields a violation for each source that has no object."""
    for path in source_files(root):
        source = str(Path(*path.parts[1:]))
        built_always = path.parts[0] == "src" and path.suffix == ".c"
        if built_always and source not in objects:
            yield Violation(str(path), f"has no object in {build}; build first")


def check_symbols(needs: Needs, homes: Homes) -> Iterator[Violation]:
    """Yields a violation for each use of a name of a higher layer."""
    for user in sorted(needs):
        for name in sorted(needs[user]):
            used = homes.get(name, [])
            if used and layer_of(user) in RANK and not any(may_use(user, home) for home in used):
                yield Violation(f"src/{user}", f"uses {name} of src/{used[0]}, a higher layer")


# ---- Circles ----


def calls_inside(folder: str, needs: Needs, homes: Homes) -> dict[str, dict[str, list[str]]]:
    """Returns {source of the folder: {other source of the folder: the names that it uses of it}}."""
    uses: dict[str, dict[str, list[str]]] = {source: {} for source in needs if str(Path(source).parent) == folder}
    for user in uses:
        for name in sorted(needs[user]):
            if user not in homes.get(name, []):
                for home in homes.get(name, []):
                    if home in uses:
                        uses[user].setdefault(home, []).append(name)
    return uses


def reachable(uses: dict[str, dict[str, list[str]]], start: str) -> set[str]:
    """Returns the sources that `start` uses, directly or not."""
    found: set[str] = set()
    todo = [start]
    while todo:
        new = uses[todo.pop()].keys() - found
        found |= new
        todo += new
    return found


def check_circles(needs: Needs, homes: Homes) -> Iterator[Violation]:
    """Yields a violation for each cycle of a folder's files."""
    for folder in sorted({str(Path(source).parent) for source in needs}):
        uses = calls_inside(folder, needs, homes)
        reach = {source: reachable(uses, source) for source in uses}
        while circles := [source for source in sorted(reach) if source in reach[source]]:
            circle = [source for source in sorted(reach) if source in reach[circles[0]] and circles[0] in reach[source]]
            steps = [f"{Path(user).name} uses {Path(home).name} ({', '.join(uses[user][home])})"
                     for user in circle for home in sorted(uses[user]) if home in circle]
            yield Violation(f"src/{folder}", f"files in a circle: {'; '.join(steps)}")
            for source in circle:
                del reach[source]


# ---- Hops ----


def check_hops(root: Path, graphs: Iterable[CallGraph]) -> Iterator[Violation]:
    """Yields a violation where a function in a table of src/README.md calls the function in the next row in no variant.
    """
    document = root / "src" / "README.md"
    caller = None
    for number, line in enumerate(document.read_text().splitlines() if document.exists() else [], 1):
        row = re.match(r"\|\s*`([\w./-]+):(\w+)`\s*\|", line)
        if row and not any(graph.functions(*row.groups()) for graph in graphs):
            yield Violation(f"src/README.md:{number}", f"{row[1]} has no function {row[2]}")
        elif row and caller:
            callees = [callee for graph in graphs for symbol in graph.functions(*caller)
                       for callee in graph.callees(symbol)]
            if not any((callee.file, callee.name) == row.groups() for callee in callees):
                yield Violation(f"src/README.md:{number}", f"{':'.join(caller)} does not call {row[1]}:{row[2]}")
        caller = row and row.groups()


# ---- One file ----


def in_one_file(source: str) -> bool:
    """Returns whether a source is a part of the one-file source."""
    return source.endswith(".c") and layer_of(source) not in NOT_IN_ONE_FILE


def check_one_file(graphs: Iterable[CallGraph]) -> Iterator[Violation]:
    """Yields a violation for each function name that several sources define."""
    homes: dict[str, set[str]] = {}
    for listing in (listing for graph in graphs for listing in graph.listings.values()):
        for symbol in listing.symbols.values():
            if symbol.function and in_one_file(symbol.file) and symbol.name.isidentifier():
                homes.setdefault(symbol.name, set()).add(symbol.file)
    for name, files in sorted(homes.items()):
        if len(files) > 1:
            first, *others = sorted(files)
            yield Violation(
                f"src/{first}",
                f"{name} is a function of src/{', src/'.join(others)}, too; the one-file source has room for one")


# ---- Dead code ----


def check_dead_code(graphs: Iterable[CallGraph]) -> Iterator[Violation]:
    """Yields a violation for each function and static object that no variant uses."""
    unused = dict[tuple[str, str], bool]()
    for graph in graphs:
        used = graph.reached()
        # A use of a weak object is also a use of the object that takes its place (HAK_DATA_UNLESS), and vice versa.
        used_names = {name for _, name in used}
        for unit in sorted(graph.listings):
            for symbol in graph.listings[unit].symbols.values():
                place = symbol.file if symbol.function else unit
                if place != OUTSIDE and symbol.name.isidentifier() and (symbol.function or symbol.shared):
                    is_used = (unit, symbol.name) in used or (not symbol.function and symbol.name in used_names)
                    unused[place, symbol.name] = unused.get((place, symbol.name), True) and not is_used
    for place, name in sorted(key for key in unused if unused[key]):
        yield Violation(f"src/{place}", f"nothing in src/ uses {name}")


# ---- Names in documents ----


def blank_c(text: str) -> str:
    """Returns C text without comments and without the contents of strings."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, lambda match: '""' if match.group()[0] in "\"'" else " ", text, flags=re.S)


def after_parentheses(text: str, start: int) -> int:
    """Returns the position behind the parenthesis that closes the one at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)


def c_defines(text: str, name: str) -> bool:
    """Returns whether C text defines `name`: a function with its body, macro, type, enumerator or file-scope object."""
    text = re.sub(r'extern\s+""\s*\{', "", blank_c(text))
    word = rf"\b{re.escape(name)}\b"
    if re.search(rf"^[ \t]*#[ \t]*define[ \t]+{word}", text, re.M):
        return True
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    if re.search(rf"\b(?:struct|union|enum)\s+{word}\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?\{{", text, re.S):
        return True
    if re.search(rf"\btypedef\b[^;{{}}]*{word}[^;{{}}]*;|\}}\s*{word}\s*;", text):
        return True
    if any(re.search(word, body) for body in re.findall(r"\benum\b[^;{}()]*\{([^}]*)\}", text)):
        return True
    depth, position = 0, 0
    for match in re.finditer(word, text):
        depth = max(0, depth + text.count("{", position, match.start()) - text.count("}", position, match.start()))
        position = match.start()
        if depth > 0:
            continue
        rest = text[match.end():].lstrip()
        if rest.startswith("("):
            if re.match(r"[^;,=]*?\{", rest[after_parentheses(rest, 0):], re.S):
                return True
        elif re.match(r"(?:\[[^;]*?\]\s*)*[=;]", rest):
            declaration = re.split(r"[;}]", text[:match.start()])[-1]
            if not re.search(r"\bextern\b", declaration):
                return True
    return False


def python_defines(text: str, name: str) -> bool:
    """Returns whether Python text defines `name`."""
    return bool(re.search(rf"^\s*(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*[:=]", text, re.M))


def find_documents(root: Path) -> Iterator[Path]:
    """Yields all Markdown files of the tree except those of builds and hidden folders."""
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if parts[0] != "build" and not any(part.startswith(".") for part in parts):
            yield path


def names_code(path: Path) -> bool:
    """Returns whether the names in a document (a path relative to the root) are checked."""
    return path.parts[0] == "docs" or str(path) in ("README.md", "src/README.md", "CONTRIBUTING.md")


def check_name(root: Path, file: str, name: str) -> str | None:
    """Returns what is wrong with a name of a file; None if the file defines it."""
    for path in (root / "src" / file, root / file):
        if path.is_file():
            defines = python_defines if path.suffix == ".py" else c_defines
            return None if defines(path.read_text(), name) else f"{file} does not define {name}"
    return f"{file} does not exist"


def check_names(root: Path) -> Iterator[Violation]:
    """Yields a violation for each `file:name` in the documents that no file defines."""
    for document in find_documents(root):
        path = document.relative_to(root)
        if not names_code(path):
            continue
        for number, line in enumerate(document.read_text().splitlines(), 1):
            for file, name in re.findall(r"`([\w./-]+\.(?:c|h|hpp|py)):([A-Za-z_]\w*)(?:\(\))?`", line):
                problem = check_name(root, file, name)
                if problem:
                    yield Violation(f"{path}:{number}", problem)


# ---- Labels of invariants ----

# A label is a letter and a digit. A header states it in a line of a comment that begins with the label, its name in
# parentheses if it has one, and a colon. Everything else that reads like a label, in code, messages and documents,
# cites one. "H1-H3" and "H1 to H3" cite three.
STATEMENT = re.compile(r"\s*/?\*\s+([A-Z][1-9])(?: \([^)]*\))?: ")
CITATION = re.compile(r"""(?:(?<![\w\-'"/.%\\$#])|(?<=")(?=..: ))([A-Z])([1-9])(?:(?:-| to )\1([1-9]))?(?![\w'])""")
CITING_SUFFIXES = (".c", ".h", ".hpp", ".cpp", ".cmake", ".py")
TABLE_ROW = re.compile(r"\|([^|]*)\|[^|]*\|([^|]*)\|")


def cited_labels(text: str) -> Iterator[str]:
    """Yields the labels that a text cites."""
    for letter, first, last in CITATION.findall(text):
        yield from (f"{letter}{digit}" for digit in range(int(first), int(last or first) + 1))


def stated_labels(root: Path) -> Stated:
    """Returns {label: [(path, line)] where it is stated}."""
    stated: Stated = {}
    for path in sorted(path for folder in ("src", "tests") for path in (root / folder).rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := STATEMENT.match(line):
                stated.setdefault(match[1], []).append((path.relative_to(root), number))
    return stated


def files_that_cite(root: Path) -> Iterator[Path]:
    """Yields the files in which labels are checked."""
    for folder in ("src", "include", "tests", "tools", "python", "bench"):
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in CITING_SUFFIXES)
    yield from find_documents(root)


def check_label_table(root: Path, stated: Stated) -> Iterator[Violation]:
    """Yields a violation for each label of src/ that the table of docs/dev/design.md lacks or places in a wrong file."""
    document = root / "docs" / "dev" / "design.md"
    listed = {}
    for line in document.read_text().splitlines() if document.exists() else []:
        row = TABLE_ROW.match(line)
        if row and STATEMENT.match(f"* {row[1].strip()[:2]}: "):
            listed.update({label: row[2] for label in cited_labels(row[1])})
    for label, (path, number) in sorted((label, places[0]) for label, places in stated.items() if listed):
        if path.parts[0] == "src" and f"`{Path(*path.parts[1:])}`" not in listed.get(label, ""):
            yield Violation(f"{path}:{number}", f"states {label}, which docs/dev/design.md does not say in its table")


def check_labels(root: Path) -> Iterator[Violation]:
    """Yields a violation for each label that is stated twice, or cited and never stated."""
    stated = stated_labels(root)
    for label, places in sorted(stated.items()):
        for path, number in places[1:]:
            yield Violation(f"{path}:{number}", f"states {label}, as {places[0][0]}:{places[0][1]} does")
    for path in files_that_cite(root):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for label in cited_labels(line):
                if label not in stated:
                    yield Violation(f"{path.relative_to(root)}:{number}", f"cites {label}, which no header states")
    yield from check_label_table(root, stated)


# ---- Length ----


def check_length(root: Path) -> Iterator[Violation]:
    """Yields a violation for each source file that is too long."""
    for path in source_files(root):
        count = len((root / path).read_text().splitlines())
        if count > MAX_LINES:
            yield Violation(str(path), f"has {count} lines, more than {MAX_LINES}")


# ---- Links ----


def heading_anchors(text: str) -> set[str]:
    """Returns the anchors of a Markdown text's headings, as GitHub and GitLab make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    anchors = set()
    for heading in re.findall(r"^#+\s+(.+?)\s*#*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchors.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return anchors


def check_link(document: Path, target: str) -> str | None:
    """Returns what is wrong with a relative link; None if it leads somewhere."""
    file, _, anchor = target.partition("#")
    path = document.parent / file if file else document
    if not path.exists():
        return f"links to {target}, which does not exist"
    if anchor and path.suffix == ".md" and anchor not in heading_anchors(path.read_text()):
        return f"links to {target}, which has no such heading"
    return None


def check_links(root: Path) -> Iterator[Violation]:
    """Yields a violation for each broken relative link."""
    for document in find_documents(root):
        fenced = False
        for number, line in enumerate(document.read_text().splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            if fenced:
                continue
            for target in re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", re.sub(r"`[^`]*`", "", line)):
                problem = None if re.match(r"[a-z][a-z+.-]*:", target) else check_link(document, target)
                if problem:
                    yield Violation(f"{document.relative_to(root)}:{number}", problem)


def check_all(root: Path, build: Path | None = None, nm: str = "nm") -> list[Violation]:
    """Returns all violations. Without a build tree, leaves out the checks of symbols and calls."""
    violations = [*check_includes(root), *check_names(root), *check_labels(root), *check_length(root)]
    violations += check_links(root)
    violations += [Violation(where, what) for check in (check_orders, check_python) for where, what in check(root)]
    if build:
        built: set[str] = set()
        found: dict[Violation, None] = {}  # each once, though several variants may have it
        for patterns in VARIANTS.values():
            objects = find_objects(root, build, patterns)
            needs, homes = read_objects(objects, nm)
            built |= objects.keys()
            found.update(dict.fromkeys([*check_symbols(needs, homes), *check_circles(needs, homes)]))
        graphs = read_calls(root, build, VARIANTS).values()
        violations += [*check_built(root, build, built), *found, *check_hops(root, graphs), *check_one_file(graphs),
                       *check_dead_code(graphs)]
    return violations


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, help="build tree; without it, symbols and calls are not looked at")
    parser.add_argument("--nm", default="nm")
    arguments = parser.parse_args()
    violations = check_all(arguments.root, arguments.build, arguments.nm)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
