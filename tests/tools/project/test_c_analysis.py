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


def all_entries(folders):
    """compile_commands.json's entries of files in these folders of the checkout."""
    found = [entry for entry in json.loads((BUILD / "compile_commands.json").read_text())
             if any(ROOT / folder in Path(entry["file"]).parents for folder in folders)]
    assert {Path(entry["file"]).relative_to(ROOT).parts[0] for entry in found} == set(folders)
    return found


def entries(folders):
    """The first entry of each file."""
    found = {}
    for entry in all_entries(folders):
        found.setdefault(entry["file"], entry)
    return list(found.values())


def words_of(entry):
    """The entry's command without its output."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    return words[:at] + words[at + 2:]


def different(chosen):
    """One of the entries for each text that the preprocessor makes of a file: each library compiles it with its own
    macros, of which the file may use none."""
    macros = {}
    for entry in chosen:
        seen = frozenset(word for word in words_of(entry) if word.startswith(("-D", "-I", "-std")))
        macros.setdefault(entry["file"], {}).setdefault(seen, entry)
    found = [entry for each in macros.values() if len(each) == 1 for entry in each.values()]
    several = [entry for each in macros.values() if len(each) > 1 for entry in each.values()]
    texts = {(entry["file"], text): entry for entry, text in zip(several, in_parallel(preprocessed, several))}
    return found + list(texts.values())


def preprocessed(entry):
    """The text that the compiler reads for an entry."""
    words = [word for word in words_of(entry) if word != "-c"]
    return subprocess.run([*words, "-E", "-P"], cwd=entry["directory"], capture_output=True, check=True).stdout


def problems_of(words, folder=ROOT):
    """What the command says, if it fails or says anything on its standard output."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=blackbox.HANG, check=False)
    return done.stdout + done.stderr if done.returncode != 0 or done.stdout else ""


def in_parallel(function, items):
    """What the function returns for the items."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, items))


def tidy(chosen, folder):
    """clang-tidy's problems for entries of compile_commands.json. It takes every entry that compiles a file."""
    (folder / "compile_commands.json").write_text(json.dumps(chosen))
    files = sorted({entry["file"] for entry in chosen})
    batches = [files[at:at + BATCH] for at in range(0, len(files), BATCH)]
    return "\n".join(filter(None, in_parallel(lambda batch: problems_of([*TIDY, "-p", str(folder), *batch]), batches)))


def gcc_analyzer(entry):
    """The problems that gcc's analyzer finds for an entry of compile_commands.json."""
    return problems_of(["gcc", *words_of(entry)[1:], "-o", os.devnull, "-fanalyzer", "-Werror"], entry["directory"])


def cppcheck(chosen, folder):
    """cppcheck's problems for entries of compile_commands.json."""
    project = folder / "compile_commands.json"
    project.write_text(json.dumps(chosen))
    return problems_of([*CPPCHECK, f"--project={project}"])


@pytest.mark.parametrize("folders", [LIBRARY, PROGRAMS], ids=["library", "programs"])
def test_clang_tidy(folders, tmp_path):
    """Also clang's warnings, with gcc's flags."""
    assert tidy(different(all_entries(folders)), tmp_path) == ""


def test_gcc_analyzer():
    """Not of the drivers and tests: they hand blocks to other threads, which the analyzer takes for leaks."""
    assert "".join(in_parallel(gcc_analyzer, entries((*LIBRARY, "tools")))) == ""


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
    assert "implicit-widening" in tidy([entry], tmp_path)
    assert "null-dereference" in gcc_analyzer(entry)


def test_a_file_is_looked_at_once_for_each_text(tmp_path):
    """Two commands whose macros make the same text of the file are one. Another macro, or another file, is not."""
    used, unused = tmp_path / "used.c", tmp_path / "unused.c"
    used.write_text("int value = NUMBER;\n")
    unused.write_text("int value = 1;\n")
    chosen = [{"directory": str(tmp_path), "file": str(file), "command": f"gcc -DNUMBER={number} -o {name}.o -c {file}"}
              for file in (used, unused) for name, number in (("a", 1), ("b", 2), ("c", 1))]
    found = [chosen.index(entry) for entry in different(chosen)]
    assert found[:2] == [0, 1] and len(found) == 3 and found[2] in (3, 4)
