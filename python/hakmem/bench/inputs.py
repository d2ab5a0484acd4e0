"""The inputs of the rows of real programs, and which installed programs these rows need.

A row's `prepare` names one of the functions here. Each function makes the inputs and the expected answers once, in a
folder of its own below FILES. It keeps what the same sources and tools made before. With a `scale` below 1 it makes
less, for tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hakmem.bench.workloads.generators import c_source, database, documents, history, script, text

if TYPE_CHECKING:
    from hakmem.bench.rows import Row

WORKLOADS = Path(__file__).resolve().parent / "workloads"
PYTHON = "/usr/bin/python3"

# The program -> Debian's package of it.
PACKAGES = {
    PYTHON: "python3",
    "cc1": "gcc",
    "cc1plus": "g++",
    "cmp": "diffutils",
    "g++": "g++",
    "gcc": "gcc",
    "git": "git",
    "lua5.4": "lua5.4",
    "perl": "perl",
    "redis-benchmark": "redis-tools",
    "redis-server": "redis-server",
    "sh": "dash",
    "sort": "coreutils",
    "sqlite3": "sqlite3",
    "true": "coreutils",
}

# `prepare` -> the programs that are needed beside the command's first word.
NEEDS = {
    "c_file": ("gcc", "cc1", "cmp"),
    "cxx_file": ("g++", "cc1plus", "cmp"),
    "lines": ("sort", "cmp"),
    "python_files": (PYTHON,),
    "redis_folder": ("redis-server", "redis-benchmark"),
    "repository": ("git", "cmp"),
}

PRIVATE_VARIABLE = re.compile(r"^(LD_|BENCH_|HAKMEM_|MALLOC_|GLIBC_TUNABLES|PYTHON|GIT_)")
GIT_SETTING = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}
# Arguments that a row's command and the making of its answer share; a test compares them with the rows.
CC1_ARGUMENTS = ["-quiet", "-w", "-O1", "-o", "-"]
CC1PLUS_ARGUMENTS = ["-quiet", "-w", "-O0", "-fpreprocessed", "-o", "-"]
LOG_ARGUMENTS = ["log", "-p", "--stat", "-M", "main"]
PACK_ARGUMENTS = ["pack-objects", "--all", "--stdout", "--no-reuse-delta", "--no-reuse-object", "--threads=1", "-q"]


class InputError(Exception):
    """An input could not be made. The text says which one and why."""


# ---- What a row needs ----


def find_program(name: str) -> str | None:
    """Returns the path of a program; None if it is not installed. The compiler knows where cc1 or cc1plus is."""
    if name not in ("cc1", "cc1plus"):
        return shutil.which(name)
    compiler = shutil.which("gcc" if name == "cc1" else "g++")
    if compiler is None:
        return None
    said = run([compiler, f"-print-prog-name={name}"]).decode().strip()
    return said if os.path.isabs(said) and os.access(said, os.X_OK) else None


def requirements(row: Row) -> list[str]:
    """Returns one text for each program that a row of real programs needs and that is not installed."""
    if row.group != "program":
        return []
    wanted = dict.fromkeys(NEEDS.get(getattr(row, "prepare", None) or "", ()))
    if "{" not in row.command[0]:
        wanted = {row.command[0]: None} | wanted
    missing = []
    for name in wanted:
        if find_program(name) is None:
            package = f" (Debian package {PACKAGES[name]})" if name in PACKAGES else ""
            missing.append(f"missing: {name}{package}")
    return missing


# ---- Making once ----


def run(command: Sequence[str | Path], *, setting: dict[str, str] | None = None, stdin: bytes | None = None,
        cwd: Path | None = None) -> bytes:
    """Returns the output of a program on the system's allocator; raises InputError if it fails."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env.update({"LC_ALL": "C", "TZ": "UTC"} | (setting or {}))
    try:
        done = subprocess.run(list(map(str, command)), env=env, cwd=cwd, input=stdin or b"", capture_output=True,
                              check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise InputError(f"{' '.join(map(str, command))}: status {done.returncode}\n{said}")
    return done.stdout


def digest_of_sources() -> str:
    """Returns a digest of all sources that decide what an input contains."""
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(WORKLOADS.rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_once(files: str | Path, name: str, scale: float, make: Callable[[Path], object],
              *tools: Sequence[str | Path]) -> Path:
    """Calls make(folder) to fill the folder FILES/NAME, unless it already holds the same.

    tools: commands that print the versions on which the contents depend. A folder is never left incomplete."""
    folder = Path(files, name)
    versions = [run(tool).decode() for tool in tools]
    stamp = json.dumps({"scale": scale, "sources": digest_of_sources(), "tools": versions})
    try:
        if Path(folder, "stamp.json").read_text(encoding="utf-8") == stamp:
            return folder
    except FileNotFoundError:
        pass
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as work:
        fresh = Path(work, name)
        fresh.mkdir()
        make(fresh)
        Path(fresh, "stamp.json").write_text(stamp, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    return folder


def scaled(number: float, scale: float) -> int:
    """Returns the number times scale, at least 1."""
    return max(1, round(number * scale))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes the lines to a file."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def write_answers(folder: Path, answers: dict[str, Any]) -> None:
    """Writes expected.json into the folder."""
    Path(folder, "expected.json").write_text(json.dumps(answers), encoding="utf-8")


# ---- The inputs ----


def json_documents(files: str | Path, scale: float = 1.0) -> Path:
    """Makes documents.jsonl and expected.json for json_documents.py."""

    def make(folder: Path) -> None:
        made = documents.make_documents(20261121, scaled(1000, scale))
        write_lines(folder / "documents.jsonl", map(json.dumps, made))
        write_answers(folder, documents.document_answers(made))

    return make_once(files, "json", scale, make)


def python_files(files: str | Path, scale: float = 1.0) -> Path:
    """Copies files of the system's Python (one at a scale below 0.5) and makes expected.json for syntax_trees.py."""
    names = ("argparse", "dataclasses", "inspect", "typing") if scale >= 0.5 else ("dataclasses",)

    def make(folder: Path) -> None:
        library = run([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]).decode().strip()
        for name in names:
            shutil.copy(Path(library, f"{name}.py"), folder)
        answers = run([PYTHON, WORKLOADS / "syntax_trees.py", folder, "answers"])
        write_answers(folder, json.loads(answers))

    return make_once(files, "python", scale, make, [PYTHON, "-VV"])


def script_text(files: str | Path, scale: float = 1.0) -> Path:
    """Makes script.txt and expected.json for mix.py."""

    def make(folder: Path) -> None:
        written, answers = script.make_script(20261121, scaled(3000, scale))
        Path(folder, "script.txt").write_text(written, encoding="utf-8")
        write_answers(folder, answers)

    return make_once(files, "script", scale, make)


def words(files: str | Path, scale: float = 1.0) -> Path:
    """Makes text.txt and expected.txt for words.lua and words.pl."""

    def make(folder: Path) -> None:
        lines_made = text.text_lines(20261121, scaled(10000, scale), words=4000, longest=20)
        write_lines(folder / "text.txt", lines_made)
        answers = text.text_answers(lines_made)
        write_lines(folder / "expected.txt", (f"{name} {value}" for name, value in answers.items()))

    return make_once(files, "words", scale, make)


def lines(files: str | Path, scale: float = 1.0) -> Path:
    """Makes lines.txt, 20 MB of short lines, and expected.txt, the same lines sorted."""

    def make(folder: Path) -> None:
        made = text.text_lines(42, scaled(800_000, scale), words=40_000, longest=5)
        write_lines(folder / "lines.txt", made)
        write_lines(folder / "expected.txt", sorted(made))

    return make_once(files, "lines", scale, make)


def sql_script(files: str | Path, scale: float = 1.0) -> Path:
    """Makes script.sql for sqlite3 -bail. The script checks its own answers."""

    def make(folder: Path) -> None:
        write_lines(folder / "script.sql", database.make_script(20261121, scaled(60000, scale)))

    return make_once(files, "sqlite", scale, make)


def redis_folder(files: str | Path, scale: float = 1.0) -> Path:
    """Makes an empty folder for the server; redis.py makes the requests."""
    return make_once(files, "redis", scale, lambda folder: None)


def c_file(files: str | Path, scale: float = 1.0) -> Path:
    """Makes work.c, a link to cc1, and expected.s, cc1's output on the system's allocator."""

    def make(folder: Path) -> None:
        write_lines(folder / "work.c", c_source.make_c(20261121, scaled(50, scale)))
        (folder / "cc1").symlink_to(find_program("cc1") or "cc1")
        (folder / "expected.s").write_bytes(run([folder / "cc1", *CC1_ARGUMENTS, "work.c"], cwd=folder))

    return make_once(files, "gcc", scale, make, ["gcc", "--version"])


def cxx_file(files: str | Path, scale: float = 1.0) -> Path:
    """Makes work.ii (preprocessed), a link to cc1plus, and expected.s, its output."""

    def make(folder: Path) -> None:
        write_lines(folder / "work.cpp", c_source.make_cxx(20261121, 1))
        run(["g++", "-std=c++17", "-E", "work.cpp", "-o", "work.ii"], cwd=folder)
        (folder / "cc1plus").symlink_to(find_program("cc1plus") or "cc1plus")
        (folder / "expected.s").write_bytes(run([folder / "cc1plus", *CC1PLUS_ARGUMENTS, "work.ii"], cwd=folder))

    return make_once(files, "gxx", scale, make, ["g++", "--version"])


def repository(files: str | Path, scale: float = 1.0) -> Path:
    """Makes a bare repository and the output of git log and pack-objects on the system's allocator."""

    def make(folder: Path) -> None:
        git: list[str | Path] = ["git", "--git-dir", folder / "repository"]
        run(["git", "init", "-q", "--bare", "-b", "main", folder / "repository"], setting=GIT_SETTING)
        stream = b"".join(history.make_history(20261121, scaled(400, scale), scaled(40, scale)))
        run([*git, "fast-import", "--quiet", "--done"], setting=GIT_SETTING, stdin=stream)
        (folder / "expected.log").write_bytes(run([*git, *LOG_ARGUMENTS], setting=GIT_SETTING))
        (folder / "expected.pack").write_bytes(run([*git, *PACK_ARGUMENTS], setting=GIT_SETTING))

    return make_once(files, "git", scale, make, ["git", "--version"])
