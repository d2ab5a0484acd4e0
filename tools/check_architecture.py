#!/usr/bin/env python3
"""Checks that the tree is built the way src/README.md says.

  includes   a file under src/ includes its own folder or a lower one; the public header only from the top
  symbols    no object calls upward, so that folders form no cycle (from the objects' symbols, by nm)
  circles    the files of one folder form no cycle either (from the same symbols)
  hops       in src/README.md's tables each function calls the one in the next row (from the call graph, call_graph.py)
  dead code  the library itself uses every function and every object of static storage (from the call graph)
  names      every `file.c:name` in the documents is a file that defines that name
  labels     every label of an invariant has one statement, and the table of docs/design.md tells in which file
  length     no source file is longer than it should be
  links      every relative link in the documents leads somewhere

Prints one line for each violation and exits 1 when there is any.
"""
import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from call_graph import OUTSIDE, read_calls

# The layers of src/, lowest first.
LAYERS = ["base", "config", "os", "options", "superslab", "pool", "profile", "front", "observe", "api"]
RANK = {layer: rank for rank, layer in enumerate(LAYERS)}

# observe/counters is the one part that any layer may use; so that this closes no cycle, it stands on these only.
LEAF = "observe/counters"
LEAF_MAY_USE = {"base", "config"}

PUBLIC_USERS = {"front", "observe", "api"}
MAX_LINES = 700

# Linked by tests alone, hence not always built: os/fake.c and its parts.
TEST_SOURCES = "os/fake"


@dataclass(frozen=True)
class Violation:
    where: str
    what: str

    def __str__(self):
        return f"{self.where}: {self.what}"


def source_files(root):
    """Files of src/ and include/, as paths relative to root."""
    for folder in ("src", "include"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".hpp"):
                yield path.relative_to(root)


def layer_of(path):
    """The layer of a path relative to src/ such as pool/slab.c."""
    return Path(path).parts[0]


def is_leaf(path):
    return str(Path(path).with_suffix("")) == LEAF


def may_use(user, used):
    """Whether src file `user` may include or call what src file `used` has; both relative to src/."""
    if is_leaf(user):
        return is_leaf(used) or layer_of(used) in LEAF_MAY_USE
    return is_leaf(used) or RANK[layer_of(used)] <= RANK[layer_of(user)]


# ---- Includes ----


def check_include(root, user, target):
    """What is wrong with src file `user` including `target`, or None."""
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


def check_includes(root):
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


def find_objects(root, build):
    """Maps each source relative to src/ to its object in a CMake build tree."""
    objects = {}
    for path in sorted(build.glob("CMakeFiles/*.dir/src/**/*.o")):
        source = Path(*path.parts[path.parts.index("src", len(build.parts)) + 1:]).with_suffix("")
        if (root / "src" / source).is_file():
            objects[str(source)] = path
    return objects


def read_symbols(nm, path):
    """The global names that an object defines and those that it needs."""
    defined, needed = set(), set()
    output = subprocess.run([nm, "-g", str(path)], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        kind, name = line.split()[-2:]
        (needed if kind in "Uwv" else defined).add(name)
    return defined, needed


def read_objects(objects, nm):
    """The names that each source needs, and the sources that define each name."""
    needs, homes = {}, {}
    for source, path in objects.items():
        defined, needs[source] = read_symbols(nm, path)
        for name in defined:
            homes.setdefault(name, []).append(source)
    return needs, homes


def check_built(root, build, objects):
    for path in source_files(root):
        source = str(Path(*path.parts[1:]))
        built_always = path.parts[0] == "src" and path.suffix == ".c" and not source.startswith(TEST_SOURCES)
        if built_always and source not in objects:
            yield Violation(str(path), f"has no object in {build}; build first")


def check_symbols(needs, homes):
    for user in sorted(needs):
        for name in sorted(needs[user]):
            used = homes.get(name, [])
            if used and layer_of(user) in RANK and not any(may_use(user, home) for home in used):
                yield Violation(f"src/{user}", f"uses {name} of src/{used[0]}, a higher layer")


# ---- Circles ----


def calls_inside(folder, needs, homes):
    """Maps each source of a folder to the others of it that it needs, and those to the names it needs them for."""
    uses = {source: {} for source in needs if str(Path(source).parent) == folder}
    for user in uses:
        for name in sorted(needs[user]):
            if user not in homes.get(name, []):
                for home in homes.get(name, []):
                    if home in uses:
                        uses[user].setdefault(home, []).append(name)
    return uses


def reachable(uses, start):
    found, todo = set(), [start]
    while todo:
        new = uses[todo.pop()].keys() - found
        found |= new
        todo += new
    return found


def check_circles(needs, homes):
    """The test system's files define the system's names again, and so are part of no circle."""
    needs = {source: names for source, names in needs.items() if not source.startswith(TEST_SOURCES)}
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


def check_hops(root, graph):
    """Rows that follow each other in a table of src/README.md whose first column is functions."""
    document = root / "src" / "README.md"
    caller = None
    for number, line in enumerate(document.read_text().splitlines() if document.exists() else [], 1):
        row = re.match(r"\|\s*`([\w./-]+):(\w+)`\s*\|", line)
        if row and not graph.functions(*row.groups()):
            yield Violation(f"src/README.md:{number}", f"{row[1]} has no function {row[2]}")
        elif row and caller:
            callees = [callee for symbol in graph.functions(*caller) for callee in graph.callees(symbol)]
            if not any((callee.file, callee.name) == row.groups() for callee in callees):
                yield Violation(f"src/README.md:{number}", f"{':'.join(caller)} does not call {row[1]}:{row[2]}")
        caller = row and row.groups()


# ---- Dead code ----


def check_dead_code(graph):
    used, unused = graph.reached(), {}
    for unit in sorted(graph.listings):
        for symbol in graph.listings[unit].symbols.values():
            place = symbol.file if symbol.function else unit
            if place != OUTSIDE and symbol.name.isidentifier() and (symbol.function or symbol.shared):
                unused[place, symbol.name] = unused.get((place, symbol.name), True) and (unit, symbol.name) not in used
    for place, name in sorted(key for key in unused if unused[key]):
        yield Violation(f"src/{place}", f"nothing in src/ uses {name}")


# ---- Names in documents ----


def blank_c(text):
    """C text with comments and the contents of strings taken out."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, lambda match: '""' if match.group()[0] in "\"'" else " ", text, flags=re.S)


def after_parentheses(text, start):
    """The position behind the closing one of the parenthesis at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)


def c_defines(text, name):
    """Whether C text defines `name`: a function with its body, macro, type, enumerator or file-scope object."""
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


def python_defines(text, name):
    return bool(re.search(rf"^\s*(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*[:=]", text, re.M))


def find_documents(root):
    """All Markdown files of the tree but those of builds and hidden folders."""
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if parts[0] != "build" and not any(part.startswith(".") for part in parts):
            yield path


def names_code(path):
    """Whether a document, relative to the root, is one whose names are checked."""
    return path.parts[0] == "docs" or str(path) in ("README.md", "src/README.md", "CONTRIBUTING.md")


def check_name(root, file, name):
    for path in (root / "src" / file, root / file):
        if path.is_file():
            defines = python_defines if path.suffix == ".py" else c_defines
            return None if defines(path.read_text(), name) else f"{file} does not define {name}"
    return f"{file} does not exist"


def check_names(root):
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
# parentheses if it has one, and a colon. Whatever else reads like a label, in code, messages and documents, cites it;
# "H1-H3" and "H1 to H3" cite three.
STATEMENT = re.compile(r"\s*/?\*\s+([A-Z][1-9])(?: \([^)]*\))?: ")
CITATION = re.compile(r"""(?:(?<![\w\-'"/.%\\$#])|(?<=")(?=..: ))([A-Z])([1-9])(?:(?:-| to )\1([1-9]))?(?![\w'])""")
CITING_SUFFIXES = (".c", ".h", ".hpp", ".cpp", ".cmake", ".py")
TABLE_ROW = re.compile(r"\|([^|]*)\|[^|]*\|([^|]*)\|")


def cited_labels(text):
    for letter, first, last in CITATION.findall(text):
        yield from (f"{letter}{digit}" for digit in range(int(first), int(last or first) + 1))


def stated_labels(root):
    """Maps each label to where it is stated: (path, line)."""
    stated = {}
    for path in sorted(path for folder in ("src", "tests") for path in (root / folder).rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := STATEMENT.match(line):
                stated.setdefault(match[1], []).append((path.relative_to(root), number))
    return stated


def files_that_cite(root):
    for folder in ("src", "include", "tests", "tools", "python", "bench"):
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in CITING_SUFFIXES)
    yield from find_documents(root)


def check_label_table(root, stated):
    """docs/design.md's table has every label that src/ states, beside the files that state it."""
    document = root / "docs" / "design.md"
    listed = {}
    for line in document.read_text().splitlines() if document.exists() else []:
        row = TABLE_ROW.match(line)
        if row and STATEMENT.match(f"* {row[1].strip()[:2]}: "):
            listed.update({label: row[2] for label in cited_labels(row[1])})
    for label, (path, number) in sorted((label, places[0]) for label, places in stated.items() if listed):
        if path.parts[0] == "src" and f"`{Path(*path.parts[1:])}`" not in listed.get(label, ""):
            yield Violation(f"{path}:{number}", f"states {label}, which docs/design.md does not say in its table")


def check_labels(root):
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


def check_length(root):
    for path in source_files(root):
        count = len((root / path).read_text().splitlines())
        if count > MAX_LINES:
            yield Violation(str(path), f"has {count} lines, more than {MAX_LINES}")


# ---- Links ----


def heading_anchors(text):
    """The anchors of a Markdown text's headings, as GitHub and GitLab make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    anchors = set()
    for heading in re.findall(r"^#+\s+(.+?)\s*#*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchors.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return anchors


def check_link(document, target):
    file, _, anchor = target.partition("#")
    path = document.parent / file if file else document
    if not path.exists():
        return f"links to {target}, which does not exist"
    if anchor and path.suffix == ".md" and anchor not in heading_anchors(path.read_text()):
        return f"links to {target}, which has no such heading"
    return None


def check_links(root):
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


def check_all(root, build=None, nm="nm"):
    violations = [*check_includes(root), *check_names(root), *check_labels(root), *check_length(root)]
    violations += check_links(root)
    if build:
        objects = find_objects(root, build)
        needs, homes = read_objects(objects, nm)
        violations += [*check_built(root, build, objects), *check_symbols(needs, homes), *check_circles(needs, homes)]
        graph = read_calls(root, build, [TEST_SOURCES])
        violations += [*check_hops(root, graph), *check_dead_code(graph)]
    return violations


def main():
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
