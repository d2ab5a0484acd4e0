"""A scratch build of the unit tests and the MF2 model, in which sources are changed one after the other."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# Parts of the checkout that the build needs. Documents are needed because CMake registers tests that compare them.
NEEDED = ("CMakeLists.txt", "cmake", "include", "src", "tests", "tools", "bench", "docs", "python")


# The object libraries of which the unit tests are made (cmake/HakmemLibraries.cmake).
UNIT_PARTS = tuple(f"hakmem_{name}.dir" for name in ("core", "os_linux", "api", "cycles_unused", "libc_api"))


@dataclass
class Test:
    """A test program."""

    name: str
    command: list[str]
    targets: list[str]  # of the build, such as bin/test_os
    seconds: float = 10.0
    kills: dict[str, int] = field(default_factory=dict)  # by file


@dataclass
class Outcome:
    """What became of a mutant: killed, survived, same (its object code equals the original's) or unbuilt."""

    state: str
    by: str = ""
    seconds: float = 0.0


def run_bounded(command: list[str], seconds: float, directory: Path,
                environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Returns (exit status, output) of a command. A command that takes too long is killed with everything it
    started; its status is then -SIGALRM."""
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, start_new_session=True, env=environment) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output.decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -signal.SIGALRM, f"longer than {seconds:.0f} s"


class Build:
    """A copy of the checkout, and a build of it."""

    def __init__(self, root: Path, folder: Path, flavor: str, jobs: int) -> None:
        self.root, self.tree, self.out, self.flavor, self.jobs = root, folder / "tree", folder / flavor, flavor, jobs
        self.tests: list[Test] = []
        self.codes: dict[str, str] = {}  # digests of the sources' object code without a mutant

    def prepare(self) -> None:
        """Copies files that have changed since the last time, and configures the build."""
        listed = subprocess.run(["git", "ls-files", "-z", "--", *NEEDED], cwd=self.root, capture_output=True,
                                check=True, text=True)
        names = set(filter(None, listed.stdout.split("\0")))
        for old in [path for path in self.tree.rglob("*") if path.is_file()]:
            if str(old.relative_to(self.tree)) not in names:
                old.unlink()  # it was moved: the build takes what lies there
        for name in sorted(names):
            source, copy = self.root / name, self.tree / name
            if not source.is_file() or (copy.is_file() and copy.read_bytes() == source.read_bytes()):
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        kind = {"release": ["-DCMAKE_BUILD_TYPE=Release"], "debug": ["-DCMAKE_BUILD_TYPE=Debug"],
                "tsan": ["-DCMAKE_BUILD_TYPE=Debug", "-DHAKMEM_SANITIZE=thread"]}[self.flavor]
        python = self.root / "build/venv/bin/python"
        self.must(["cmake", "-G", "Ninja", "-S", str(self.tree), "-B", str(self.out), "-DHAKMEM_BENCH=OFF",
                   "-DHAKMEM_WITHOUT_MUTANTS=ON",
                   f"-DHAKMEM_PYTHON={python}", *kind])

    def must(self, command: list[str]) -> str:
        """Returns the output of a command; ends this program if the command fails."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"mutate: {' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def find_tests(self) -> None:
        """Builds the unit tests' programs and the MF2 model, and asks ctest how to run them."""
        known = self.must(["ninja", "-C", str(self.out), "-t", "targets", "all"])
        programs = re.findall(r"^(bin/test_(?!mf2)\w+|bin/mf2): C_EXECUTABLE_LINKER", known, re.MULTILINE)
        good, output = self.make(sorted(programs))
        if not good:
            raise SystemExit(f"mutate: the sources do not build:\n{output}")
        listed = json.loads(self.must(["ctest", "--test-dir", str(self.out), "--show-only=json-v1"]))
        for test in listed["tests"]:
            command, name = test.get("command", []), test["name"]
            if not command or not command[0].startswith(str(self.out / "bin")):
                continue
            properties = {row["name"]: row["value"] for row in test.get("properties", [])}
            if "unit" in properties.get("LABELS", []) or (name.startswith("mf2_") and Path(command[0]).name == "mf2"):
                words = properties.get("ENVIRONMENT", [])
                self.tests.append(Test(name, ["env", *words, *command] if words else command,
                                       [os.path.relpath(command[0], self.out)]))

    def make(self, targets: list[str]) -> tuple[bool, str]:
        """Builds the targets. Returns (whether that succeeded, the end of the output)."""
        done = subprocess.run(["ninja", "-C", str(self.out), f"-j{self.jobs}", *targets], capture_output=True,
                              text=True, check=False)
        return done.returncode == 0, done.stdout[-2000:]

    def measure(self) -> None:
        """Runs and times every test on the unchanged sources. Leaves out a test that fails twice there, and says so."""
        for test in list(self.tests):
            start = time.monotonic()
            output = fails(test, self.out, 300)
            test.seconds = time.monotonic() - start
            if output is not None:
                print(f"left out: {test.name} fails without a mutant: {first_failure(output)}", flush=True)
                self.tests.remove(test)
        if not self.tests:
            raise SystemExit("mutate: no test passes without a mutant")

    def objects(self, file: str) -> list[Path]:
        """Returns the object files of a source: those of the unit tests, or if it is in no unit test, all."""
        built = sorted(self.out.glob(f"CMakeFiles/hakmem*.dir/{file}.o"))
        return [path for path in built if path.relative_to(self.out).parts[1] in UNIT_PARTS] or built

    def code_of(self, file: str) -> str:
        """Returns a digest of the source's object code; "" for a header, which has none."""
        digest = hashlib.sha256()
        for path in self.objects(file):
            digest.update(
                subprocess.run(["objdump", "-d", "-s", "-r", str(path)], capture_output=True, check=True).stdout)
        return digest.hexdigest() if self.objects(file) else ""

    def judge(self, file: str, changed: bytes, tests: list[Test] | None = None) -> Outcome:
        """Builds with the source changed and runs tests until one fails. The best killers of this file go first."""
        place, start = self.tree / file, time.monotonic()
        original = place.read_bytes()
        if file not in self.codes:  # the build is still that of the unchanged sources
            self.codes[file] = self.code_of(file)
        code = self.codes[file]
        chosen = sorted(self.tests if tests is None else tests, key=lambda test:
                        (-test.kills.get(file, 0), not is_near(test, file), test.seconds))
        try:
            place.write_bytes(changed)
            if code:
                good, _ = self.make([str(path.relative_to(self.out)) for path in self.objects(file)])
                if not good:
                    return Outcome("unbuilt", seconds=time.monotonic() - start)
                if self.code_of(file) == code:
                    return Outcome("same", seconds=time.monotonic() - start)
            first = max(3, sum(test.kills.get(file, 0) > 0 or is_near(test, file) for test in chosen))
            for part in filter(
                    None,
                (chosen[:first], chosen[first:])):  # most mutants are found before the other programs are linked
                good, _ = self.make(sorted({target for test in part for target in test.targets}))
                if not good:
                    return Outcome("unbuilt", seconds=time.monotonic() - start)
                for test in part:
                    output = fails(test, self.out, max(10, 8 * test.seconds))
                    if output is not None:
                        test.kills[file] = test.kills.get(file, 0) + 1
                        return Outcome("killed", f"{test.name}: {first_failure(output)}", time.monotonic() - start)
            return Outcome("survived", seconds=time.monotonic() - start)
        finally:
            place.write_bytes(original)

    def judge_known(self, file: str, changed: bytes, test: Test) -> Outcome:
        """Builds one test's program, runs it, and runs it again with the source changed."""
        place = self.tree / file
        original = place.read_bytes()
        good, output = self.make(test.targets)
        failure = fails(test, self.out, 120) if good else output
        if failure is not None:
            return Outcome("FAILS", f"{test.name} without the mutant: {first_failure(failure)}")
        try:
            place.write_bytes(changed)
            good, output = self.make(test.targets)
            if not good:
                return Outcome("unbuilt", output[-500:])
            failure = fails(test, self.out, 120)
            return Outcome("SURVIVED", f"{test.name}: passes") if failure is None else Outcome(
                "killed", f"{test.name}: {first_failure(failure)}")
        finally:
            place.write_bytes(original)
            os.utime(place)


def fails(test: Test, directory: Path, seconds: float) -> str | None:
    """Returns the output of a test that fails twice, the second time with twice the time limit; None if it passes.
    On a loaded machine a test may fail once."""
    for bound in (seconds, 2 * seconds):
        status, output = run_bounded(test.command, bound, directory)
        if status == 0:
            return None
    return output


# {folder: tests that find most in it, besides tests named after the source}
NEAR = {
    "src/superslab": ("test_shared_pool", "test_purge", "test_limits", "test_huge", "test_huge_cache",
                      "test_huge_resize"),
    "src/os": ("test_os",), "src/base": ("test_base",), "src/pool": ("test_heap", "test_registry", "test_span"),
    "src/front": ("test_thread_cache", "test_deep")
}


def is_near(test: Test, file: str) -> bool:
    """Returns whether the test is about the source's module."""
    stem = Path(file).stem.split("_")[0]
    return stem in test.name or test.name in NEAR.get(str(Path(file).parent), ())


def first_failure(output: str) -> str:
    """Returns the line that says what failed, or the last line of the output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        name = line.removeprefix("[  FAILED  ] ")
        if (name != line and " " not in name) or "longer than" in line or line.startswith(("mf2: ", "FAILED ")):
            return name[:100]
    return lines[-1][:100] if lines else "ended without a word"
