"""Protects the C sources: three analysers that compile them as the build does find nothing, and find what is wrong.

A file that was analysed without a finding is not analysed again while it, its headers, its commands and the analyser
are the same; ~/.cache/hakmem/analysis (tests/kept.py) keeps digests of them. Without digests, clang-tidy and cppcheck
read all of src, which is where they have found faults, and each analyser what this branch has changed. TEST_FRESH=1:
all three read all that they are for.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import blackbox
import kept

ROOT = blackbox.REPOSITORY
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", ROOT / "build/release"))
KEPT = 20_000  # digests: a whole analysis has 700
FRESH = os.environ.get("TEST_FRESH") == "1"
BATCH = 8  # files that one clang-tidy reads
# For gcc's flags that clang does not know.
TIDY = ["clang-tidy", "--quiet", "--extra-arg=-Wno-ignored-optimization-argument"]
# cppcheck 2.10 does not know C11's word.
CPPCHECK = ["cppcheck", "--quiet", "--enable=warning,performance,portability", "--error-exitcode=1", "-j2",
            "-D_Noreturn=__attribute__((noreturn))"]


# ---- What the build compiles ----

def all_entries(folders):
    """compile_commands.json's entries of files in these folders of the checkout."""
    found = [entry for entry in json.loads((BUILD / "compile_commands.json").read_text())
             if any(ROOT / folder in Path(entry["file"]).parents for folder in folders)]
    assert {Path(entry["file"]).relative_to(ROOT).parts[0] for entry in found} == set(folders)
    return found


def first_of_each(chosen):
    """The first entry of each file."""
    found = {}
    for entry in chosen:
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


def tidy(entries, folder):
    """clang-tidy's problems for entries of compile_commands.json. It takes every entry that compiles a file."""
    chosen = different(entries)
    (folder / "compile_commands.json").write_text(json.dumps(chosen))
    files = sorted({entry["file"] for entry in chosen})
    batches = [files[at:at + BATCH] for at in range(0, len(files), BATCH)]
    return "\n".join(filter(None, in_parallel(lambda batch: problems_of([*TIDY, "-p", str(folder), *batch]), batches)))


def gcc_analyzer(entries, _):
    """The problems that gcc's analyser finds for entries of compile_commands.json."""
    def problems(entry):
        return problems_of(["gcc", *words_of(entry)[1:], "-o", os.devnull, "-fanalyzer", "-Werror"], entry["directory"])

    return "".join(in_parallel(problems, entries))


def cppcheck(chosen, folder):
    """cppcheck's problems for entries of compile_commands.json."""
    project = folder / "compile_commands.json"
    project.write_text(json.dumps(chosen))
    return problems_of([*CPPCHECK, f"--project={project}"])


# ---- What need not be read ----

@functools.cache
def headers_of_objects():
    """{object: the files that the build's compiler read for it}."""
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(\S.*): #deps .*\n((?: +\S.*\n)+)", said, re.M)
    return {name: [row.strip() for row in rows.splitlines()] for name, rows in found}


def headers_of(entry):
    """The file of an entry, and all that it includes."""
    words = shlex.split(entry["command"])
    found = headers_of_objects().get(words[words.index("-o") + 1])
    if found is None:
        rule = subprocess.run([*(word for word in words_of(entry) if word != "-c"), "-M"], cwd=entry["directory"],
                              capture_output=True, text=True, check=True).stdout
        words = re.split(r"(?<!\\)\s+", rule.replace("\\\n", " ").partition(": ")[2].strip())
        found = [word.replace("\\ ", " ") for word in words]
    return sorted({os.path.normpath(os.path.join(entry["directory"], name)) for name in [entry["file"], *found]})


@functools.cache
def digest_of(file):
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


@functools.cache
def version_of(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def key_of(tool, entry, headers):
    """A digest of all that decides what the tool finds. The same in each checkout."""
    version = version_of(tool.command[0])
    settings = [digest_of(str(file)) for file in tool.settings]
    told = [[os.path.relpath(file, ROOT) if ROOT in Path(file).parents else file, digest_of(file)] for file in headers]
    words = [word.replace(str(ROOT), ".") for word in words_of(entry)]
    return hashlib.sha256(json.dumps([tool.command, version, settings, words, told]).encode()).hexdigest()


def changed():
    """The files that differ from those of origin/main at which this branch began."""
    def git(*words):
        done = subprocess.run(["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        return done.stdout.split("\n") if done.returncode == 0 else []

    begun = git("merge-base", "HEAD", "origin/main")[:1] or ["HEAD"]
    names = [*git("diff", "--name-only", *begun), *git("ls-files", "--others", "--exclude-standard")]
    return {str(ROOT / name) for name in names if name}


@dataclasses.dataclass(frozen=True)
class Tool:
    """An analyser. find: returns what it finds in some entries. reads: all folders that it is for; always: those that
    it reads on a machine that keeps no digests. every: whether it reads each command of a file, or the first."""

    command: tuple[str, ...]
    find: Callable[[list, Path], str]
    reads: tuple[str, ...]
    always: tuple[str, ...] = ()
    every: bool = False
    settings: tuple[Path, ...] = ()


def unread(tool):
    """{key: an entry that the tool is to read}."""
    found, mine, clean = {}, changed(), kept.folder("analysis")
    entries = all_entries(tool.reads)
    for entry in entries if tool.every else first_of_each(entries):
        headers = headers_of(entry)
        always = Path(entry["file"]).relative_to(ROOT).parts[0] in tool.always
        if FRESH or always or not mine.isdisjoint(headers):
            key = key_of(tool, entry, headers)
            if FRESH or not (clean / key).exists():
                found[key] = entry
    return found


def note(keys):
    """Keeps the keys of entries in which nothing was found. The oldest of too many go."""
    clean = kept.folder("analysis")
    for key in keys:
        (clean / key).touch()
    for path in sorted(clean.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        path.unlink(missing_ok=True)


TOOLS = {
    "clang-tidy": Tool(tuple(TIDY), tidy, ("src", "bench", "tools", "tests"), ("src",), True,
                       (ROOT / ".clang-tidy", ROOT / "src/.clang-tidy", ROOT / "tests/.clang-tidy")),
    # Not for the drivers and tests: they hand blocks to other threads, which the analyser takes for leaks.
    "gcc": Tool(("gcc", "-fanalyzer", "-Werror"), gcc_analyzer, ("src", "tools")),
    "cppcheck": Tool(tuple(CPPCHECK), cppcheck, ("src", "bench", "tools", "tests"), ("src",)),
}


@pytest.mark.parametrize("name", TOOLS)
def test_nothing_is_found(name, tmp_path):
    """clang-tidy tells clang's warnings, too, with gcc's flags."""
    entries = unread(TOOLS[name])
    print(f"{len(entries)} entries to read")
    if entries:
        assert TOOLS[name].find(list(entries.values()), tmp_path) == ""
        note(entries)


def test_another_header_or_command_is_read_again(tmp_path):
    source, header = tmp_path / "one.c", tmp_path / "one.h"
    source.write_text('#include "one.h"\n')
    keys = set()
    for text in "int a;\n", "int b;\n":
        header.write_text(text)
        digest_of.cache_clear()
        for flag in "-O1", "-O2":
            entry = {"directory": str(tmp_path), "file": str(source), "command": f"gcc {flag} -o no.o -c {source}"}
            assert str(header) in headers_of(entry)
            keys.add(key_of(TOOLS["gcc"], entry, headers_of(entry)))
    assert len(keys) == 4


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
    assert "null-dereference" in gcc_analyzer([entry], tmp_path)
