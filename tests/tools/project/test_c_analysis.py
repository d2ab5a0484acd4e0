"""Protects the C sources: three analysers that compile them as the build does find nothing, and find what is wrong."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", ROOT / "build/release"))
LIBRARY, PROGRAMS = ("src",), ("bench", "tools", "tests")
BATCH = 8  # files that one clang-tidy reads
# For gcc's flags that clang does not know.
TIDY = ["clang-tidy", "--quiet", "--extra-arg=-Wno-ignored-optimization-argument"]
# cppcheck 2.10 does not know C11's word.
CPPCHECK = ["cppcheck", "--quiet", "--enable=warning,performance,portability", "--error-exitcode=1", "-j2",
            "-D_Noreturn=__attribute__((noreturn))"]


def entries(folders):
    """compile_commands.json's first entry of each file in these folders of the checkout."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if any(ROOT / folder in path.parents for folder in folders):
            found.setdefault(path.resolve(), entry)
    assert {path.relative_to(ROOT).parts[0] for path in found} == set(folders)
    return list(found.values())


def problems_of(words, folder=ROOT):
    """What the command says, if it fails or says anything on its standard output."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=blackbox.HANG, check=False)
    return done.stdout + done.stderr if done.returncode != 0 or done.stdout else ""


def in_parallel(function, items):
    """The problems that the function returns for the items."""
    with ThreadPoolExecutor(2) as pool:
        return "\n".join(filter(None, pool.map(function, items)))


def tidy(files, build=BUILD):
    """clang-tidy's problems. It takes every command of the build that compiles a file: each library has its own."""
    return problems_of([*TIDY, "-p", str(build), *files])


def gcc_analyzer(entry):
    """The problems that gcc's analyzer finds for an entry of compile_commands.json."""
    words = shlex.split(entry["command"])[1:]
    words[words.index("-o") + 1] = os.devnull
    return problems_of(["gcc", *words, "-fanalyzer", "-Werror"], entry["directory"])


def cppcheck(chosen, folder):
    """cppcheck's problems for entries of compile_commands.json."""
    project = folder / "compile_commands.json"
    project.write_text(json.dumps(chosen))
    return problems_of([*CPPCHECK, f"--project={project}"])


@pytest.mark.parametrize("folders", [LIBRARY, PROGRAMS], ids=["library", "programs"])
def test_clang_tidy(folders):
    """Also clang's warnings, with gcc's flags."""
    files = [entry["file"] for entry in entries(folders)]
    assert in_parallel(tidy, [files[at:at + BATCH] for at in range(0, len(files), BATCH)]) == ""


def test_gcc_analyzer():
    """Not of the drivers and tests: they hand blocks to other threads, which the analyzer takes for leaks."""
    assert in_parallel(gcc_analyzer, entries((*LIBRARY, "tools"))) == ""


def test_cppcheck(tmp_path):
    assert cppcheck(entries(LIBRARY + PROGRAMS), tmp_path) == ""


WRONG = """\
#include <stdlib.h>
#include <string.h>
void *copy(const char *from, unsigned count)
{
    char *bytes = malloc(2 * count);
    if (!bytes)
        bytes[0] = 0;
    memset(bytes, 0, sizeof bytes + count);
    return memcpy(bytes, from, count);
}
"""


def test_each_finds(tmp_path):
    """A fault in a file that stands where a source of the library would stand is found by each of the three."""
    source = tmp_path / "src/wrong.c"
    source.parent.mkdir()
    source.write_text(WRONG)
    for name in (".clang-tidy", "src/.clang-tidy"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    entry = {"directory": str(tmp_path), "file": str(source), "command": f"gcc -O2 -o wrong.o -c {source}"}
    assert "nullPointer" in cppcheck([entry], tmp_path)
    assert "implicit-widening" in tidy([str(source)], tmp_path)
    assert "null-dereference" in gcc_analyzer(entry)
