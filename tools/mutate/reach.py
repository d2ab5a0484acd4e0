"""Finds out which tests run which lines of src/, by the flavor coverage (tools/coverage)."""

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

from builds import Build, Test, run_bounded

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "coverage"))

import figures  # noqa: E402


def unit_source(name: str) -> str:
    """Returns the source of a unit test. Tests of one source differ in a number, or in their processors."""
    return f"tests/unit/{re.sub(r'_(?:[0-9]+|one_cpu)$', '', name)}.c"


class Reach:
    """The lines that each test runs: {test: {file: its lines}}, and the lines that have code."""

    def __init__(self, build: Build, folder: Path) -> None:
        self.build, self.out, self.file = build, build.root / "build/coverage", folder / "reach.json"
        self.rows: dict[str, dict[str, list[int]]] = {}
        self.code: dict[str, list[int]] = {}
        self.digests: dict[str, str] = {}

    def prepare(self, tests: list[Test]) -> None:
        """Reads what is known, and runs the tests that are not known as they are, on the sources as they are."""
        if self.file.is_file():
            stored = json.loads(self.file.read_text())
            if stored["sources"] == self.digest("src/*/*.[ch]"):
                self.rows, self.code, self.digests = stored["rows"], stored["code"], stored["digests"]
        digests = {test.name: self.digest(self.source_of(test)) for test in tests}
        missing = [test for test in tests if self.digests.get(test.name) != digests[test.name]]
        if not missing:
            return
        self.build.must(["cmake", "--preset", "coverage", "-S", str(self.build.root)])
        for test in missing:
            self.rows[test.name] = self.lines_of(test)
            self.digests[test.name] = digests[test.name]
            self.file.write_text(json.dumps({"sources": self.digest("src/*/*.[ch]"), "digests": self.digests,
                                             "rows": self.rows, "code": self.code}))
            print(f"{test.name} runs {sum(map(len, self.rows[test.name].values()))} lines of src/", flush=True)

    def digest(self, pattern: str) -> str:
        """Returns a digest of files."""
        digest = hashlib.sha256()
        for path in sorted(self.build.tree.glob(pattern)):
            digest.update(str(path).encode() + path.read_bytes())
        return digest.hexdigest()

    def source_of(self, test: Test) -> str:
        """Returns the test's source, in which a change may make it run other lines."""
        return test.name if test.name.startswith("tests/") else unit_source(test.name)

    def lines_of(self, test: Test) -> dict[str, list[int]]:
        """Runs a test in the build that counts. Returns the lines that it runs, by file."""
        name = test.name.replace("/", "-")
        counters, profile = self.out / "reach" / name, self.out / "reach" / f"{name}.profdata"
        shutil.rmtree(counters, ignore_errors=True)
        programs = [str(self.out / target) for target in test.targets]
        self.build.must(["ninja", "-C", str(self.out), f"-j{self.build.jobs}", *test.targets])
        command = [word.replace(str(self.build.out), str(self.out)).replace(str(self.build.tree), str(self.build.root))
                   for word in test.command]
        run_bounded(["env", f"LLVM_PROFILE_FILE={counters}/%p-%m%c.profraw", *command], 900, self.build.root)
        if not any(counters.glob("*.profraw")):
            return {}  # the test runs no program on the library here, or only its files
        figures.merged(counters, profile)
        shutil.rmtree(counters)
        binaries = [path for path in (*programs, *map(str, figures.binaries(self.out)[3:])) if Path(path).is_file()]
        lines: dict[str, list[int]] = {}
        file = ""
        for row in figures.output_of("llvm-cov", "export", "-format=lcov", binaries[0],
                                     *(f"-object={path}" for path in binaries[1:]),
                                     f"-instr-profile={profile}").splitlines():
            kind, _, value = row.partition(":")
            if kind == "SF":
                path = Path(value)
                file = str(path.relative_to(self.build.root)) if path.is_relative_to(self.build.root / "src") else ""
            elif kind == "DA" and file:
                line, count = (int(number) for number in value.split(",")[:2])
                self.code[file] = sorted({*self.code.get(file, []), line})
                if count:
                    lines.setdefault(file, []).append(line)
        return lines

    def of(self, file: str, line: int, tests: list[Test]) -> list[Test]:
        """Returns the tests that run the line; all of them if it is no line that llvm counts. A test that includes a
        header may run its lines in code of its own, which is not counted."""
        if line not in self.code.get(file, []):
            return tests
        return [test for test in tests if line in self.rows[test.name].get(file, []) or self.includes(test, file)]

    def includes(self, test: Test, file: str) -> bool:
        """Returns whether the test's source includes the header."""
        if not file.endswith(".h"):
            return False
        source = self.build.tree / self.source_of(test)
        wanted = f'#include "{file.removeprefix("src/")}"'
        return source.suffix == ".c" and source.is_file() and wanted in source.read_text()
