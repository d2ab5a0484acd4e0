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
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hakmem.bench.rows import AS_USER
from hakmem.bench.workloads.generators import database, documents, history, pages, problems, text

if TYPE_CHECKING:
    from hakmem.bench.rows import Row

WORKLOADS = Path(__file__).resolve().parent / "workloads"
TO_COMPILE = WORKLOADS / "sources"
PYTHON = "/usr/bin/python3"

# The program -> Debian's package of it.
PACKAGES = {
    PYTHON: "python3",
    "cadical": "cadical",
    "cc1": "gcc",
    "cc1plus": "g++",
    "cmp": "diffutils",
    "ffmpeg": "ffmpeg",
    "g++": "g++",
    "gawk": "gawk",
    "gcc": "gcc",
    "git": "git",
    "gm": "graphicsmagick",
    "gs": "ghostscript",
    "initdb": "postgresql-15",
    "ld": "binutils",
    "lua5.4": "lua5.4",
    "mariadbd": "mariadb-server-core",
    "metamath": "metamath",
    "minisat": "minisat",
    "node": "nodejs",
    "pdftotext": "poppler-utils",
    "perl": "perl",
    "php": "php-cli",
    "postgres": "postgresql-15",
    "redis-benchmark": "redis-tools",
    "redis-server": "redis-server",
    "ruby": "ruby",
    "sh": "dash",
    "sqlite3": "sqlite3",
    "unshare": "util-linux",
    "xsltproc": "xsltproc",
    "z3": "z3",
    "/usr/include/nlohmann/json.hpp": "nlohmann-json3-dev",
    "/usr/include/stb/stb_image.h": "libstb-dev",
}

# `prepare` -> the programs and files that are needed beside the command's first word.
NEEDS = {
    "archives": ("g++", "ld"),
    "c_file": ("gcc", "cc1", "/usr/include/stb/stb_image.h"),
    "cxx_file": ("g++", "cc1plus", "/usr/include/nlohmann/json.hpp"),
    "postgresql": ("initdb", "postgres"),
    "python_files": (PYTHON,),
    "redis_folder": ("redis-server", "redis-benchmark"),
    "repository": ("git",),
}

# The static libraries that come with a C and a C++ compiler.
ALL_LIBRARIES = ("libstdc++.a", "libc.a", "libasan.a", "libtsan.a", "liblsan.a", "libubsan.a", "libgcc.a", "libgomp.a",
                 "libitm.a", "libsupc++.a", "libstdc++fs.a", "libquadmath.a")

PRIVATE_VARIABLE = re.compile(r"^(LD_|BENCH_|HAKMEM_|MALLOC_|GLIBC_TUNABLES|PYTHON|GIT_)")
GIT_SETTING = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}


# Files of WORKLOADS that decide what an input or an answer contains.
SOURCES = (".py", ".sh", ".sql", ".xsl", ".cpp", ".c", ".js", ".php", ".rb", ".pl", ".lua")


class InputError(Exception):
    """An input could not be made. The text says which one and why."""


# ---- What a row needs ----


def find_program(name: str) -> str | None:
    """Returns the path of a program or file; None if it is not installed.

    The compiler knows where cc1 or cc1plus is. Debian keeps the programs of each version of PostgreSQL apart."""
    if name in ("initdb", "postgres"):
        return next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if name not in ("cc1", "cc1plus"):
        return shutil.which(name) or (name if Path(name).is_absolute() and Path(name).is_file() else None)
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
    if row.checked:
        wanted |= dict.fromkeys((*row.user()[:1], "sh", "cmp"))
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
        status: int = 0, output: IO[bytes] | None = None) -> bytes:
    """Returns the output of a program on the system's allocator; raises InputError if it ends with another status.

    output: a file that the program writes to, in place of what is returned."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env.update({"LC_ALL": "C", "TZ": "UTC"} | (setting or {}))
    try:
        done = subprocess.run(list(map(str, command)), env=env, input=stdin or b"", stdout=output or subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != status:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise InputError(f"{' '.join(map(str, command))}: status {done.returncode}\n{said}")
    return done.stdout or b""


def digest_of_sources() -> str:
    """Returns a digest of all sources that decide what an input contains."""
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(path for path in WORKLOADS.rglob("*") if path.suffix in SOURCES)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_once(files: str | Path, name: str, scale: float, make: Callable[[Path], object],
              *tools: Sequence[str | Path], more: str = "") -> Path:
    """Calls make(folder) to fill the folder FILES/NAME, unless it already holds the same.

    tools: commands that print the versions on which the contents depend. more: what else they depend on. A folder is
    never left incomplete."""
    folder = Path(files, name)
    versions = [*(run(tool).decode() for tool in tools), more]
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


def made_in(name: str, *tools: Sequence[str]) -> Callable[[Callable[[Path, float], None]], Callable[..., Path]]:
    """Returns a decorator. A function that fills a folder at a scale becomes one for `prepare`, by which make_once()
    makes FILES/name."""
    def decorate(fill: Callable[[Path, float], None]) -> Callable[..., Path]:
        @wraps(fill)
        def made(files: str | Path, scale: float = 1.0) -> Path:
            versions = ([find_program(tool[0]) or tool[0], *tool[1:]] for tool in tools)
            return make_once(files, name, scale, lambda folder: fill(folder, scale), *versions)

        return made

    return decorate


def make_answer(row: Row, files: str | Path) -> Path:
    """Makes the file `expected` of a checked row: what its program prints on the system's allocator."""
    program = row.program(files)
    found = find_program(program[0]) or program[0]
    before = [stamp.read_text(encoding="utf-8") for stamp in sorted(Path(files).glob("*/stamp.json"))
              if str(stamp.parent) in f"{row.input(files)} {' '.join(program)}"]
    more = json.dumps([row.status, row.setting, os.path.getmtime(os.path.realpath(found)), *program, *before])

    def make(folder: Path) -> None:
        with open(folder / "expected", "wb") as output:
            run([*row.user(), *program], setting=row.setting, stdin=Path(row.input(files)).read_bytes(),
                status=row.status, output=output)

    return make_once(Path(files, "answers"), row.name, 1.0, make, more=more)


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


@made_in("json")
def json_documents(folder: Path, scale: float) -> None:
    """Makes documents.jsonl and expected.json for json_documents.py."""
    made = documents.make_documents(20261121, scaled(1000, scale))
    write_lines(folder / "documents.jsonl", map(json.dumps, made))
    write_answers(folder, documents.document_answers(made))


@made_in("python", [PYTHON, "-VV"])
def python_files(folder: Path, scale: float) -> None:
    """Copies files of the system's Python (one at a scale below 0.5) and makes expected.json for syntax_trees.py."""
    names = ("argparse", "dataclasses", "inspect", "typing") if scale >= 0.5 else ("dataclasses",)
    library = run([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]).decode().strip()
    for name in names:
        shutil.copy(Path(library, f"{name}.py"), folder)
    answers = run([PYTHON, WORKLOADS / "syntax_trees.py", folder, "answers"])
    write_answers(folder, json.loads(answers))


@made_in("words")
def words(folder: Path, scale: float) -> None:
    """Makes text.txt and expected.txt for words.lua and words.pl."""
    lines_made = text.text_lines(20261121, scaled(10000, scale), words=4000, longest=20)
    write_lines(folder / "text.txt", lines_made)
    answers = text.text_answers(lines_made)
    write_lines(folder / "expected.txt", (f"{name} {value}" for name, value in answers.items()))


@made_in("sqlite")
def sqlite_script(folder: Path, scale: float) -> None:
    """Makes script.sql for sqlite3 -bail. The script checks its own answers."""
    write_lines(folder / "script.sql", database.make_script(20261121, scaled(300_000, scale)))


@made_in("mariadb")
def mariadb(folder: Path, scale: float) -> None:
    """Makes script.sql for mariadbd --bootstrap, which checks its own answers, and an empty folder of data."""
    (folder / "data").mkdir()
    write_lines(folder / "script.sql", database.make_script(20261121, scaled(30_000, scale), database.MARIADB))


@made_in("postgresql", ["postgres", "--version"])
def postgresql(folder: Path, scale: float) -> None:
    """Makes script.sql for postgres --single, a cluster of databases, and a link to the program."""
    user = AS_USER if os.geteuid() == 0 else ()
    run([*user, find_program("initdb") or "initdb", "--no-locale", "--encoding=UTF8", "--auth=trust", "--no-sync",
         "-D", folder / "cluster"])
    (folder / "postgres").symlink_to(find_program("postgres") or "postgres")
    write_lines(folder / "script.sql",
                database.make_script(20261121, scaled(120_000, scale), database.POSTGRESQL))


@made_in("redis")
def redis_folder(folder: Path, scale: float) -> None:
    """Leaves the folder empty for the server; redis.py makes the requests."""


def less(scale: float) -> list[str]:
    """Returns the options that make the sources to compile shorter."""
    return ["-DLESS"] if scale < 0.5 else []


@made_in("gcc", ["gcc", "--version"])
def c_file(folder: Path, scale: float) -> None:
    """Makes images.i, C behind the preprocessor (less of it at a scale below 0.5), and a link to cc1."""
    (folder / "images.i").write_bytes(run(["gcc", "-E", "-P", *less(scale), TO_COMPILE / "images.c"]))
    (folder / "cc1").symlink_to(find_program("cc1") or "cc1")


@made_in("gxx", ["g++", "--version"])
def cxx_file(folder: Path, scale: float) -> None:
    """Makes documents.ii, C++ behind the preprocessor (less of it, as c_file does), and a link to cc1plus."""
    (folder / "documents.ii").write_bytes(
        run(["g++", "-std=c++17", "-E", "-P", *less(scale), TO_COMPILE / "documents.cpp"]))
    (folder / "cc1plus").symlink_to(find_program("cc1plus") or "cc1plus")


@made_in("archives", ["g++", "--version"], ["ld", "--version"])
def archives(folder: Path, scale: float) -> None:
    """Makes all.ld, which tells the linker the static libraries of the compiler (one at a scale below 0.5)."""
    names = ALL_LIBRARIES if scale >= 0.5 else ("libc.a",)
    paths = [os.path.realpath(run(["g++", f"-print-file-name={name}"]).decode().strip()) for name in names]
    write_lines(folder / "all.ld", [f"INPUT({' '.join(paths)})"])


@made_in("git", ["git", "--version"])
def repository(folder: Path, scale: float) -> None:
    """Makes a bare repository."""
    run(["git", "init", "-q", "--bare", "-b", "main", folder / "repository"], setting=GIT_SETTING)
    stream = b"".join(history.make_history(20261121, scaled(900, scale), scaled(60, scale)))
    run(["git", "--git-dir", folder / "repository", "fast-import", "--quiet", "--done"], setting=GIT_SETTING,
        stdin=stream)


@made_in("formulas")
def formulas(folder: Path, scale: float) -> None:
    """Makes large.cnf and small.cnf, formulas that cannot be satisfied, for minisat and cadical.

    At a scale below 0.5 they have more clauses for each variable, which is easier to refute."""
    for name, variables in (("large", 240), ("small", 215)):
        count = scaled(variables, max(scale, 0.4))
        clauses = round(count * (problems.HARDEST if scale >= 0.5 else 2 * problems.HARDEST))
        write_lines(folder / f"{name}.cnf", problems.make_formula(2, count, clauses))


@made_in("schedules")
def schedules(folder: Path, scale: float) -> None:
    """Makes shop.smt2 for z3."""
    jobs = scaled(10, max(scale, 0.5))
    write_lines(folder / "shop.smt2", problems.make_schedule(1, jobs, 8, (120, 80, 65, 60)))


@made_in("proofs")
def proofs(folder: Path, scale: float) -> None:
    """Makes proofs.mm for metamath."""
    write_lines(folder / "proofs.mm", problems.make_proofs(20261121, scaled(4000, scale)))


@made_in("pictures")
def pictures(folder: Path, scale: float) -> None:
    """Makes picture.ppm."""
    (folder / "picture.ppm").write_bytes(pages.make_image(scaled(2400, scale), scaled(1800, scale)))


@made_in("documents")
def documents_to_convert(folder: Path, scale: float) -> None:
    """Makes book.xml for xsltproc, pages.ps for Ghostscript, and pages.pdf for Poppler."""
    write_lines(folder / "book.xml", pages.make_book(20261121, scaled(2000, scale)))
    write_lines(folder / "pages.ps", pages.make_postscript(20261121, scaled(450, scale)))
    (folder / "pages.pdf").write_text(pages.make_pdf(20261121, scaled(1200, scale)), encoding="latin-1")
