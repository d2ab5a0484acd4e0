"""Protects the sources: tools that read them find nothing. Only tools that take seconds run here."""

import io
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
COLUMNS = 120
GENERATED = {"python/hakmem/heap/profile_pb2.py"}  # protoc's
TEXTS = (".c", ".h", ".cpp", ".hpp", ".py", ".md", ".txt", ".toml", ".cmake", ".rs", ".go", ".sh")
# Words of other languages and interfaces, in codespell's form: Cargo's, jemalloc's, ffmpeg's, x86's, beginnings of
# words to complete, and names of parameters.
WORDS = "crate,allocatedp,alls,tje,bu,indicat,upto,fro"


def files(*endings):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = [name for name in listed.stdout.split("\0") if name.endswith(endings) and name not in GENERATED]
    assert found
    return [name for name in found if (ROOT / name).is_file()]


def finds_nothing(*words):
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def scripts():
    """All files that a shell runs."""
    def is_script(name):
        with open(ROOT / name, "rb") as file:
            first = file.readline(80)
        return first.startswith(b"#!") and first.split()[-1].endswith(b"sh")

    return [name for name in files("") if is_script(name)]


def test_ruff():
    """Names that do not exist, are unused or are imported for types alone, and code that cannot be intended."""
    finds_nothing(sys.executable, "-m", "ruff", "check", "--no-cache", "--isolated", "--quiet",
                  "--output-format=concise", "--select=F,PLE,TC004", *files(".py"))


def test_mypy():
    """Types that do not fit, in python/hakmem; python/pyproject.toml says how strictly it looks."""
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", ROOT / "build/mypy"], cwd=ROOT / "python",
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Success"), done.stdout + done.stderr


def folders_of_tools():
    """tools/, and the folders in it with modules of Python. The modules of each import one another by bare names."""
    return sorted({str(Path(name).parent) for name in files(".py") if name.startswith("tools/")})


@pytest.mark.parametrize("folder", folders_of_tools())
def test_mypy_of_tools(folder):
    """Types that do not fit, in tools/; tools/mypy.ini says how strictly it looks."""
    modules = [name for name in files(".py") if str(Path(name).parent) == folder]
    places = [ROOT / "python", ROOT / "tests", ROOT / "tools", ROOT / "tools/coverage", ROOT / folder]
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "tools/mypy.ini", "--cache-dir",
                           ROOT / "build/mypy-tools", *modules], cwd=ROOT, capture_output=True,
                          text=True, check=False, env={**os.environ, "MYPYPATH": ":".join(map(str, places))})
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Success"), done.stdout + done.stderr


def long_strings(text):
    """The lines of Python that a string of 60 characters or more is on: it is not always worth a break."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and len(token.string) >= 60:
            found.update(range(token.start[0], token.end[0] + 1))
    return found


def markdown_rows(text):
    """The lines of Markdown that cannot be broken: a table's row, an image, a line with an address, and what stands in a
    block of code, which is what a program prints or a reader types."""
    found, in_code = set(), False
    for number, line in enumerate(text.splitlines(), 1):
        in_code ^= line.lstrip().startswith("```")
        if in_code or line.lstrip().startswith(("|", "![", "[![")) or re.search(r"https?://\S", line):
            found.add(number)
    return found


def test_columns():
    """Code of C, Python, CMake and ./hakmem with its parts, the Makefile and all pages have lines of 120 columns at most."""
    excuses = {".py": long_strings, ".md": markdown_rows}
    found = []
    for name in [*files(".c", ".h", ".cpp", ".hpp", ".py", ".sh", "CMakeLists.txt", ".cmake", ".cmake.in", ".md"),
                 "hakmem", "Makefile"]:
        text = (ROOT / name).read_text()
        if "/vendor/" in name or "/corpus/" in name or all(len(line) <= COLUMNS for line in text.splitlines()):
            continue
        excused = excuses.get(Path(name).suffix, lambda _: ())(text)
        found += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1)
                  if len(line) > COLUMNS and number not in excused]
    assert found == []


def test_shellcheck():
    assert {"hakmem", ".ci/run"} < set(scripts())
    # With the files that a script sources, and what is wrong in them.
    finds_nothing("shellcheck", "--external-sources", "--check-sourced", *scripts())


def test_codespell():
    finds_nothing("codespell", f"--ignore-words-list={WORDS}", "hakmem", *files(*TEXTS))
