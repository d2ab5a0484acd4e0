#!/usr/bin/env python3
"""Names the tests that concern a change, and what must be built for them, for ./hakmem test --changed.

    which_tests.py --build build/release [--base REV] [--explain]
        prints a line `test NAME` for each test of ctest, `target NAME` for each file that ninja has to make, and `list
        NAME` for each list of tools/packages that the tests need beyond ./hakmem test

The change is what differs from the merge base with origin/main (or from REV), committed or not. The build folder has to
be configured with Ninja. It needs not be built: for what was never compiled, the sources are searched for #include.

| changed file | its tests |
|---|---|
| a source or header of src/ or include/ | see of_library(): every test depends on the library, so it takes the closest |
| another C file | those that run a program made from it |
| a module of python/hakmem | those that import it or run a command that imports it, the closest first |
| a Python test, or a file beside it | the test itself; those beside it that name the file, or all of them |
| a document | those of tests/tools/docs, and those that name it |
| another file | those that name it, or whose folder has the name of one of its folders |
"""
from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from python_layers import imports_of
from test_stages import stage_of

ROOT = Path(__file__).resolve().parents[1]
# Run after each change of the library: its public interface, and what it does when a program misuses it.
ALWAYS = ("test_api", "test_api_libc", "pytest.misuse")
# The most unit tests for a change of src/, besides those with the name of a changed file, and the most Python tests for
# a change of python/hakmem. With them a small change is built and tested within a minute on two processors.
MOST_UNIT, MOST_PYTHON = 10, 6
# Programs with a fault of their own, which their tests find. They say nothing about the library.
FAULTY = re.compile("_mutant_|_unsound_")
# Files of tests/ that every Python test uses. ALWAYS has one that does.
OF_ALL = {"tests/conftest.py", "tests/blackbox.py"}
# Names of files in many folders.
COMMON = {"CMakeLists", "README", "__init__", "__main__", "conftest", "command"}
C_SUFFIXES = {".c", ".h", ".cpp", ".S"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
# A function's definition or prototype, in the layout of this project: at the start of a line.
FUNCTION = re.compile(r"^[A-Za-z_][\w *]*?\b([a-z]\w*_\w+)\s*\(", re.M)
IMPORT = re.compile(r"^\s*(?:from\s+hakmem(?:\.([\w.]+))?\s+import\s+\(?([\w, ]+)|import\s+hakmem\.([\w.]+))", re.M)
COMMAND_OF = re.compile(r'"(\w+)": "hakmem\.([\w.]+):')
# A file of the build in a test's text. Python's {...} stands for any text.
WORD = re.compile(r"(?<=[\"/])[A-Za-z{][\w.{}-]{3,}")
ADD_TEST = re.compile(r'^add_test\((?:\[=*\[)?([^\]\s"]+)(?:\]=*\])?\s+(.*)\)$', re.M)
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass
class Listed:
    """A test of ctest. Paths are relative to the root of the project where they are in it."""

    name: str
    command: list[str]
    labels: list[str] = field(default_factory=list)

    def is_pytest(self) -> bool:
        """Returns whether pytest runs it."""
        return "pytest" in self.command

    def files(self, root: Path) -> list[Path]:
        """Returns the Python files of its own: those of its folder that no other test has, or its one file."""
        ignored = {word.removeprefix("--ignore=") for word in self.command if word.startswith("--ignore=")}
        found: list[Path] = []
        for word in self.command:
            if word.startswith("tests/") and word not in ignored:
                path = root / word
                found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return [path for path in found if str(path.relative_to(root)) not in ignored]

    def folder(self, root: Path) -> str:
        """Returns the folder of its Python files."""
        word = next(word for word in self.command if word.startswith("tests/"))
        return word if (root / word).is_dir() else str(Path(word).parent)


class Graph:
    """What the build makes from what. Paths are relative to the root of the project where they are in it."""

    def __init__(self, inputs: dict[str, list[str]], headers: dict[str, list[str]]) -> None:
        self.inputs = inputs
        self.users: dict[str, set[str]] = defaultdict(set)
        for made, used in [*inputs.items(), *headers.items()]:
            for path in used:
                self.users[path].add(made)

    def reached(self, path: str) -> set[str]:
        """Returns all that is made from a file, directly or not."""
        found: set[str] = set()
        left = [path]
        while left:
            for made in self.users.get(left.pop(), ()):
                if made not in found:
                    found.add(made)
                    left.append(made)
        return found

    def own_sources(self, program: str) -> list[str]:
        """Returns the sources of a program that CMake compiles for it alone."""
        return [source for made in self.inputs.get(program, ()) if f"/{Path(program).name}.dir/" in made
                for source in self.inputs.get(made, ()) if Path(source).suffix in C_SUFFIXES]


def output_of(*words: str | Path) -> str:
    """Returns what a command prints. Ends if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"which_tests.py: {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def relative(path: str, root: Path, folder: Path) -> str:
    """Returns a path, which may be relative to the folder, relative to the root if it is below it."""
    whole = os.path.normpath(folder / path)
    return whole.removeprefix(f"{root}/")


def read_graph(root: Path, build: Path) -> Graph:
    """Reads the graph from ninja: each target's inputs, and the headers that compilers named."""
    def near(path: str) -> str:
        return relative(path, root, build)

    targets = [line.rpartition(": ")[0] for line in output_of("ninja", "-C", build, "-t", "targets", "all").splitlines()
               if ": " in line and not line.startswith("ninja: ")]
    inputs: dict[str, list[str]] = {}
    made, reading = "", False
    for line in output_of("ninja", "-C", build, "-t", "query", *targets).splitlines():
        if line.startswith("    "):
            path = line.strip()
            if reading and not path.startswith("|| "):
                inputs[made].append(near(path.removeprefix("| ")))
        elif line.startswith("  "):
            reading = line.startswith("  input:")
        elif line.endswith(":"):
            made = near(line[:-1])
            inputs[made] = []
    headers: dict[str, list[str]] = {}
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line.startswith("    "):
            headers[made].append(near(line.strip()))
        elif ": #deps" in line:
            made = near(line.partition(": #deps")[0])
            headers[made] = []
    for made, used in inputs.items():
        if made.endswith(".o") and made not in headers:
            headers[made] = [name for source in used if Path(source).suffix in C_SUFFIXES
                             for name in all_includes(root, source)]
    return Graph(inputs, headers)


@cache
def includes(root: Path, source: str) -> tuple[str, ...]:
    """Returns the files of the project that a source includes itself."""
    path = root / source
    if not path.is_file():
        return ()
    places = [path.parent, *(root / name for name in ("src", "include", "tests/support", "tests/unit",
                                                       "tests/stress/load", "bench/drivers", "tools/trace"))]
    found = []
    for name in INCLUDE.findall(path.read_text(errors="replace")):
        whole = next((place / name for place in places if (place / name).is_file()), None)
        if whole:
            found.append(relative(str(whole), root, root))
    return tuple(found)


def all_includes(root: Path, source: str) -> list[str]:
    """Returns the files of the project that a source includes, directly or not."""
    found: dict[str, None] = {}
    left = [source]
    while left:
        for name in includes(root, left.pop()):
            if name not in found:
                found[name] = None
                left.append(name)
    return list(found)


def read_tests(root: Path, build: Path) -> list[Listed]:
    """Reads the tests from ctest. It leaves out the command of a program that is not built; CMake's file has it."""
    commands: dict[str, list[str]] = {}
    for path in build.rglob("CTestTestfile.cmake"):
        for name, words in ADD_TEST.findall(path.read_text()):
            commands[name] = QUOTED.findall(words)
    tests = []
    for each in json.loads(output_of("ctest", "--test-dir", build, "--show-only=json-v1"))["tests"]:
        labels: list[str] = next((one["value"] for one in each.get("properties", ()) if one["name"] == "LABELS"), [])
        words = each.get("command") or commands.get(each["name"], [])
        tests.append(Listed(each["name"], [word.replace(f"{root}/", "") for word in words], labels))
    return tests


def read_modules(root: Path) -> dict[str, set[str]]:
    """Returns {module of python/hakmem: modules that it imports, in functions too}."""
    folder = root / "python/hakmem"
    found = {".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
             for path in folder.rglob("*.py")}
    return {module: {whole if (whole := f"{package}.{name}".removeprefix(".")) in found else package
                     for _, package, name in imports_of(ast.parse(path.read_text()))} & set(found)
            for module, path in found.items()}


def changed_files(root: Path, base: str | None) -> list[str]:
    """Returns the files that differ from the base, and those that git does not know yet."""
    if base is None:
        known = subprocess.run(["git", "-C", root, "merge-base", "HEAD", "origin/main"], capture_output=True, text=True,
                               check=False)
        base = known.stdout.strip() if known.returncode == 0 else "HEAD"
    told = output_of("git", "-C", root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    new = output_of("git", "-C", root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (told + new).split("\0") if name})


class Choice:
    """The tests that concern some files, each with the reasons."""

    def __init__(self, root: Path, build: str, graph: Graph, tests: list[Listed], modules: dict[str, set[str]],
                 commands: dict[str, str]) -> None:
        self.root, self.build, self.graph, self.modules, self.commands = root, build, graph, modules, commands
        self.tests = {test.name: test for test in tests}
        self.why: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def take(self, tests: Iterable[Listed], why: str) -> bool:
        """Takes the tests for a reason. Returns whether there are any."""
        names = [test.name for test in tests if not FAULTY.search(" ".join(test.command))]
        for name in names:
            self.why.setdefault(name, []).append(why)
        return bool(names)

    def take_naming(self, tests: Iterable[Listed], why: str) -> bool:
        """As take(), for a reason that may be a weak one: takes no `long` test if another has the reason, too."""
        found = list(tests)
        short = [test for test in found if "long" not in test.labels]
        left_out = [test.name for test in found if test not in short and test.name not in self.why]
        if short and left_out:
            self.notes.append(f"takes long and was left out: {', '.join(left_out)}, which {why}")
        return self.take(short or found, why)

    def take_always(self, why: str) -> None:
        """Takes the tests that run after each change of the library."""
        self.take((self.tests[name] for name in ALWAYS if name in self.tests), why)

    def takes_none(self, path: str) -> bool:
        """Returns whether nothing was taken for a file so far."""
        return not any(path in reason for reasons in self.why.values() for reason in reasons)

    def pytests(self) -> list[Listed]:
        """Returns the tests that pytest runs."""
        return [test for test in self.tests.values() if test.is_pytest()]

    @cache  # noqa: B019  (one object lives as long as the program)
    def text_of(self, name: str) -> str:
        """Returns the text of a Python test's files, and of those beside them that are no tests."""
        test = self.tests[name]
        files = dict.fromkeys(test.files(self.root))
        files |= dict.fromkeys(path for path in (self.root / test.folder(self.root)).glob("*.py")
                               if not path.name.startswith("test_"))
        return "\n".join(path.read_text() for path in files if path.is_file())

    def that_name(self, word: str) -> list[Listed]:
        """Returns the Python tests in whose text the word stands by itself."""
        pattern = re.compile(rf"(?<![\w/-]){re.escape(word)}(?![\w-])" if word[0].isalpha() else
                             rf"{re.escape(word)}(?![\w-])")
        return [test for test in self.pytests() if pattern.search(self.text_of(test.name))]

    def choose(self, changed: Iterable[str]) -> None:
        """Takes the tests of all changed files."""
        library: list[str] = []
        modules: list[str] = []
        for path in changed:
            first, suffix = path.partition("/")[0], Path(path).suffix
            self.take((test for test in self.tests.values() if path in test.command), f"runs on {path}")
            if first in ("src", "include") and suffix in C_SUFFIXES:
                library.append(path)
            elif path.startswith("python/hakmem/") and suffix == ".py":
                modules.append(".".join(Path(path).relative_to("python/hakmem").with_suffix("").parts)
                               .removesuffix(".__init__"))
            elif suffix == ".md":
                self.of_document(path)
            elif not (suffix in C_SUFFIXES and self.of_program(path)) and not (
                    first == "tests" and self.of_test(path)):
                self.of_other(path)
        if library:
            self.of_library(library)
        if modules:
            self.of_modules(modules)

    # ---- C ----

    def of_library(self, changed: list[str]) -> None:
        """Takes the unit tests that are closest to the changed sources, and ALWAYS. Every unit test links the library.
        The closest are those with a changed file's name, or that compile it once more, for themselves; then those
        whose own sources include its header or call its functions, most functions first."""
        every = {program: test for test in self.tests.values() if "unit" in test.labels and test.command
                 for program in test.command[:1]}
        apart = self.compiled_apart(changed)
        names = {path: names_of(path) for path in changed}
        headers = {header for path in changed for header in (path, str(Path(path).with_suffix(".h")))}
        functions = {name for path in headers if (self.root / path).is_file()
                     for name in FUNCTION.findall((self.root / path).read_text(errors="replace"))}
        near: list[tuple[int, str, str]] = []
        for program, test in every.items():
            same = next((path for path, known in names.items() if is_named(test.name, known)), None)
            if same:
                self.take([test], f"has the name of {same}")
                continue
            own = self.graph.own_sources(program)
            text = "\n".join((self.root / source).read_text(errors="replace") for source in own)
            called = sorted(functions & set(re.findall(r"\w+", text)))
            included = sorted(headers & {name for source in own for name in includes(self.root, source)})
            if called or included:
                why = f"includes {', '.join(included)}" if included else ""
                why += (", " if why and called else "") + (f"calls {', '.join(called[:3])}" if called else "")
                near.append((len(called) + len(included), test.name, why))
        self.take((test for test in self.tests.values() if test.command and test.command[0] in apart),
                  "compiles a changed file for itself")
        near = sorted((one for one in near if one[1] not in self.why), key=lambda one: (-one[0], one[1]))
        for _, name, why in near[:MOST_UNIT]:
            self.take([self.tests[name]], why)
        others = sum(test.name not in self.why for test in every.values())
        if others:
            self.notes.append(f"{others} more unit tests link what changed: ./hakmem test runs them")
        self.take_always("runs after each change of the library")

    def compiled_apart(self, changed: list[str]) -> set[str]:
        """Returns the programs with an object from a changed source that is in no library."""
        libraries = f"{self.build}/lib/"
        return {made for path in changed for compiled in self.graph.users.get(path, ())
                if path in self.graph.inputs.get(compiled, ())
                and not any(each.startswith(libraries) for each in self.graph.reached(compiled))
                for made in self.graph.reached(compiled)}

    def of_program(self, path: str) -> bool:
        """Takes the tests that run a program made from the file."""
        made = {each for each in self.graph.reached(path) if each.startswith((f"{self.build}/bin/",
                                                                              f"{self.build}/lib/"))}
        found = self.take_naming((test for test in self.tests.values() if made & set(test.command)),
                                 f"is made from {path}")
        for program in sorted(made - {test.command[0] for test in self.tests.values() if test.command}):
            name = Path(program).name
            found |= self.take_naming(self.that_name(f'"{name}') + self.that_name(f"/{name}"),
                                      f"runs {name}, which is made from {path}")
        return found

    # ---- Python ----

    def of_modules(self, changed: list[str]) -> None:
        """Takes the Python tests that import a changed module, or run a command that does, by the fewest imports."""
        far = {name: distance for name in (test.name for test in self.pytests())
               if (distance := self.distance(name, set(changed))) is not None}
        packages = {module.partition(".")[0] for module in changed}

        def rank(name: str) -> tuple[bool, int, bool, str]:
            folder = Path(self.tests[name].folder(self.root))
            return folder.name not in packages, far[name][0], folder.parent.name != "tools", name

        ranked = sorted(far, key=rank)
        for name in ranked[:MOST_PYTHON]:
            self.take([self.tests[name]], far[name][1])
        if not ranked:
            self.notes.append(f"no test concerns {', '.join(changed)}")
        if len(ranked) > MOST_PYTHON:
            self.notes.append(
                f"{len(ranked) - MOST_PYTHON} more Python tests use what changed: ./hakmem test runs them")

    def distance(self, name: str, changed: set[str]) -> tuple[int, str] | None:
        """Returns how many imports lie between a test and a changed module, and the reason as text."""
        left = [(module, why) for module, why in self.uses(name).items() if module in self.modules]
        seen = {module for module, _ in left}
        steps = 0
        while left:
            following = []
            for module, why in left:
                if module in changed:
                    return steps, why if steps == 0 else f"{why}, which imports {module}"
                for used in sorted(self.modules[module] - seen):
                    seen.add(used)
                    following.append((used, why))
            left, steps = following, steps + 1
        return None

    @cache  # noqa: B019
    def uses(self, name: str) -> dict[str, str]:
        """Returns {module that a Python test imports, or whose command it runs: the reason as text}."""
        text = self.text_of(name)
        found: dict[str, str] = {}
        for command, module in self.commands.items():
            if re.search(rf'[(\[,]\s*"{command}(?:"\s*[,)\]]| )', text):
                found[module] = f"runs hakmem {command}"
        for package, names, whole in IMPORT.findall(text):
            for each in [whole] if whole else names.replace(" ", "").split(","):
                inner = f"{package}.{each}".removeprefix(".")
                module = inner if inner in self.modules else package
                found[module] = f"imports hakmem.{module}"
        return found

    def of_test(self, path: str) -> bool:
        """Takes the tests of a file of a Python test, or of a file that such a test uses."""
        if path in OF_ALL:
            return self.take((test for test in self.pytests() if test.name in ALWAYS), f"uses {path}, as all do")
        whole = self.root / path
        if self.take((test for test in self.pytests() if whole in test.files(self.root)
                      and whole.name.startswith("test_")), f"has {path}"):
            return True
        beside = [test for test in self.pytests() if path.startswith(f"{test.folder(self.root)}/")]
        if not beside:
            name = whole.stem if whole.suffix == ".py" else whole.name
            return self.take_naming(self.that_name(name), f"names {path}")
        naming = [test for test in beside if re.search(rf"\b{re.escape(whole.name)}\b", self.text_of(test.name))]
        return self.take(naming or beside, f"names {path}" if naming else f"is beside {path}")

    # ---- Documents and the rest ----

    def of_document(self, path: str) -> None:
        """Takes the tests of documents, and those that name this one."""
        self.take((test for test in self.pytests() if test.folder(self.root) == "tests/tools/docs"),
                  f"reads documents, such as {path}")
        if "/" in path:
            self.take_naming(self.that_name(path), f"names {path}")

    def of_other(self, path: str) -> None:
        """Takes the tests that name a file, or whose folder has the name of one of its folders."""
        whole = Path(path)
        if path == "hakmem" or path.startswith("tools/command/"):
            self.take((test for test in self.pytests() if any(
                file.name.startswith("test_hakmem_") for file in test.files(self.root))), f"tests {path}")
            return
        if whole.name in ("CMakeLists.txt", "CMakePresets.json") or whole.suffix == ".cmake":
            self.notes.append(f"{path} changes the build: ./hakmem test builds and tests all")
            self.take_always(f"shows whether the build works after {path} changed")
            return
        names = {path}
        if "." in whole.name and whole.stem not in COMMON:
            names |= {whole.name, whole.stem} if whole.suffix == ".py" else {whole.name}
        tests = {test.name: test for name in names for test in self.that_name(name)}
        found = self.take_naming(tests.values(), f"names {path}")
        parts = set(whole.parts[:-1]) - {"tools", "tests"}
        found |= self.take((test for test in self.pytests() if Path(test.folder(self.root)).name in parts),
                           f"has the name of a folder of {path}")
        if not found and self.takes_none(path):
            self.notes.append(f"no test concerns {path}")

    # ---- What has to be built ----

    def targets(self) -> list[str]:
        """Returns what ninja has to make for the chosen tests, relative to the build folder."""
        made = {path.removeprefix(f"{self.build}/"): path for path in self.graph.inputs
                if path.startswith((f"{self.build}/bin/", f"{self.build}/lib/"))}
        found: set[str] = set()
        for name in self.why:
            test = self.tests[name]
            found |= {word.removeprefix(f"{self.build}/") for word in test.command} & set(made)
            if test.is_pytest():
                found |= {"lib/libhakmem.so"} & set(made)
                found |= {each for each in made if self.needs(name, Path(each).name)}
        return sorted(found)

    @cache  # noqa: B019
    def words_of(self, name: str) -> tuple[frozenset[str], tuple[str, ...]]:
        """Returns the words of a Python test and of the modules that it uses, and those with a part in braces."""
        texts = [self.text_of(name)]
        if "override_archive" in texts[0]:
            texts.append('"libhakmem-override.a"')
        left, seen = list(self.uses(name)), set()
        while left:
            module = left.pop()
            if module in self.modules and module not in seen:
                seen.add(module)
                left += self.modules[module]
                path = self.root / "python/hakmem" / module.replace(".", "/")
                texts += [file.read_text() for file in (path.with_suffix(".py"), path / "__init__.py",
                                                        *path.parent.glob("*.toml")) if file.is_file()]
        words = set(WORD.findall("\n".join(texts)))
        open_ends = {re.sub(r"\{[^}]*\}", "*", word) for word in words if "{" in word}
        return frozenset(words), tuple(word for word in open_ends if len(word.replace("*", "").strip("{}")) > 4)

    def needs(self, name: str, file: str) -> bool:
        """Returns whether a Python test names a file of the build."""
        words, open_ends = self.words_of(name)
        return file in words or any(fnmatch.fnmatchcase(file, word) for word in open_ends)


def names_of(path: str) -> set[str]:
    """Returns the names that a unit test of a source may have: shared_pool, superslab_shared_pool."""
    whole = Path(path)
    return {whole.stem, f"{whole.parent.name}_{whole.stem}"}


def is_named(test: str, names: Iterable[str]) -> bool:
    """Returns whether a test has one of the names, or a longer or shorter form: test_slab and test_slab_more for slab,
    test_hardened for hardened_exit."""
    own = test.removeprefix("test_").removesuffix("_current").removeprefix("docs_")
    return any(own == name or own.startswith(f"{name}_") or name.startswith(f"{own}_") for name in names)


def lines(choice: Choice, explain: bool) -> Iterator[str]:
    """Yields what the command prints."""
    for name, why in sorted(choice.why.items()):
        yield f"test {name}" + (f": {'; '.join(dict.fromkeys(why))}" if explain else "")
    for target in choice.targets():
        yield f"target {target}"
    stages = {stage_of("release", choice.tests[name].labels) for name in choice.why}
    for each in sorted({each for stage in stages for each in stage.packages}):
        yield f"list {each}"


def read_choice(root: Path, build: Path) -> Choice:
    """Reads all that the choice needs from a configured build folder."""
    commands = dict(COMMAND_OF.findall((root / "python/hakmem/cli.py").read_text()))
    return Choice(root, relative(str(build), root, root), read_graph(root, build), read_tests(root, build),
                  read_modules(root), commands)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--base", metavar="REV")
    parser.add_argument("--explain", action="store_true")
    given = parser.parse_args()
    build = given.build.resolve()
    if not (build / "build.ninja").is_file():
        sys.exit(f"which_tests.py: {build} is not configured with Ninja")
    choice = read_choice(ROOT, build)
    choice.choose(changed_files(ROOT, given.base))
    for line in lines(choice, given.explain):
        print(line)
    for note in choice.notes:
        print(f"which_tests.py: {note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
