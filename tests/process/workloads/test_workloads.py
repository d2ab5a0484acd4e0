"""Protects the rows of real programs, small: right on the system's malloc and on HAKMEM, and loud if wrong."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.bench import inputs, programs, rows  # noqa: E402

SCALE = 0.05
# Those of programs.py are compiled; tests/process/drivers has them.
ROWS = {row.name: row for row in rows.load()
        if row.group == "program" and not hasattr(programs, row.prepare or "nothing")}
MAKERS = sorted({row.prepare for row in ROWS.values() if row.prepare})
# Row -> the program that gets the allocator, if that is not the command's first word.
STARTED = {name: "redis-server" for name in ROWS if name.startswith("redis")}
# Scripts whose own shell gets the allocator, with the programs that they start.
SHELLS = {"shell": {"sh", "sed", "sort", "uniq", "grep"}}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The inputs of every row, small."""
    folder = tmp_path_factory.mktemp("files")
    for row in ROWS.values():
        assert inputs.requirements(row) == []
        rows.prepare(row, folder, SCALE)
    return folder


def words_of(row, files):
    """The row's command with little work. redis counts it in requests, the others in rounds."""
    words = row.argv(files)
    if row.scale_at is not None:
        words[row.scale_at] = "1500" if row.name in STARTED else "1"
    return words


def run_row(row, files, library, **extra):
    env = {**row.setting, **extra}
    if row.preload == "child":
        env["BENCH_PRELOAD"] = str(library or "")
        return blackbox.run(words_of(row, files), env=env)
    return blackbox.run(words_of(row, files), env=env, preload=library)


def test_every_kind_of_program_has_rows():
    """The mean over the real programs is one over many kinds, none of which outweighs the others."""
    kinds = [row.kind for row in rows.load() if row.group == "program"]
    assert len(kinds) >= 24 and set(kinds) == set(rows.KINDS)
    assert max(map(kinds.count, rows.KINDS)) <= len(kinds) // 4


@pytest.mark.parametrize("name", ROWS)
def test_row_is_right(name, files, library, tmp_path):
    """The program's malloc is bound to HAKMEM, but not that of a script that only starts it. The system's malloc gives
    other bytes here than where the answer was made, so an answer that follows memory nobody wrote is found."""
    row = ROWS[name]
    log = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(tmp_path / "log")}
    for preload, extra in ((None, {"MALLOC_PERTURB_": "85"}), (library, log)):
        result = run_row(row, files, preload, **extra)
        assert (result.status, result.stderr) == (0, ""), result.report()
    bound = programs_bound_to(tmp_path, library)
    wanted = SHELLS.get(name, {STARTED.get(name, Path(row.command[0]).name)})
    assert wanted <= bound, bound
    if row.preload == "child" and name not in SHELLS:
        assert bound == wanted, "the script's helpers got the allocator, too"


def test_redis_on_the_system_has_the_malloc_of_the_c_library(files, tmp_path):
    """Debian's redis-server is linked with jemalloc, which would otherwise serve the run without a preload."""
    result = run_row(ROWS["redis-strings"], files, None, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "log"))
    assert result.status == 0, result.report()
    logs = [path.read_text(errors="replace") for path in tmp_path.iterdir()]
    bindings = re.compile(r"binding file \S*redis-server \[0\] to (\S+) \[0\]: normal symbol `malloc'")
    assert {Path(name).name for log in logs for name in bindings.findall(log)} == {"libc.so.6"}


def programs_bound_to(folder, library):
    """The programs in the linker's logs whose malloc is the library's."""
    wanted = re.compile(r"binding file (\S+) \[0\] to " + re.escape(str(library)) + r" \[0\]: normal symbol `malloc'")
    names = set()
    for log in folder.iterdir():
        names.update(Path(name).name for name in wanted.findall(log.read_text(errors="replace")))
    return {name for name in names if ".so" not in name}


# ---- Inputs ----


def contents(folder):
    """The contents of each file below the folder, and the targets of links. Clusters of PostgreSQL have identities."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if "cluster" in path.parts:
            continue
        if path.is_symlink():
            found[path.relative_to(folder)] = os.readlink(path)
        elif path.is_file():
            found[path.relative_to(folder)] = path.read_bytes()
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_inputs_made_twice_are_the_same(name, tmp_path):
    make = getattr(inputs, name)
    make(tmp_path / "one", SCALE)
    make(tmp_path / "two", SCALE)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_inputs_are_made_once_and_anew_for_another_scale(tmp_path):
    made = inputs.words(tmp_path, SCALE)
    first = (made / "text.txt").stat()
    inputs.words(tmp_path, SCALE)
    assert (made / "text.txt").stat().st_ino == first.st_ino
    inputs.words(tmp_path, 2 * SCALE)
    assert (made / "text.txt").stat().st_size > 1.5 * first.st_size
    assert [path.name for path in tmp_path.iterdir()] == ["words"]


def test_an_input_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(inputs.InputError, match="no-such-program"):
        inputs.make_once(tmp_path, "any", 1, lambda folder: None, ["no-such-program", "--version"])
    with pytest.raises(inputs.InputError, match="status 2"):
        inputs.make_once(tmp_path, "any", 1, lambda folder: inputs.run(["ls", folder / "missing"]))
    assert list(tmp_path.iterdir()) == []


# ---- Mistakes are detected ----

# Row -> a file of its input, and the text to replace in it. None: the file gets one more line.
CORRUPTIONS = {
    "sqlite": ("sqlite/script.sql", (b"(7,", b"(-7,")),
    "mariadb": ("mariadb/script.sql", (b"(7,", b"(-7,")),
    "postgresql": ("postgresql/script.sql", (b"(7,", b"(-7,")),
    "python-json": ("json/documents.jsonl", (b'"zip": ', b'"zip": 1')),
    "python-default": ("json/documents.jsonl", (b'"price": ', b'"price": 1')),
    "python-ast": ("python/dataclasses.py", (b"MISSING = ", b"MISSINg = ")),
    "perl": ("words/text.txt", None),
    "lua": ("words/text.txt", None),
    "ruby": ("words/text.txt", None),
    "php": ("words/text.txt", None),
    "node": ("words/text.txt", None),
    "gcc": ("gcc/images.i", (b"stbir_resize_uint8", b"stbir_resize_uint9")),
    "gxx": ("gxx/documents.ii", (b"counts.size()", b"values.size()")),
    "ld": ("archives/all.ld", (b"libc.a", b"libm.a")),
    "z3": ("schedules/shop.smt2", (b"(pop)", b"(check-sat)(pop)")),
    "minisat": ("formulas/large.cnf", (b"-", b"")),
    "cadical": ("formulas/small.cnf", (b"-", b"")),
    "metamath": ("proofs/proofs.mm", (b"ax-mp ax-mp", b"ax-mp")),
    "ffmpeg-video": ("answers/ffmpeg-video/expected", (b", ", b"; ")),
    "ffmpeg-audio": ("answers/ffmpeg-audio/expected", (b", ", b"; ")),
    "gm": ("pictures/picture.ppm", (b"\x00", b"\xff")),
    "ghostscript": ("documents/pages.ps", (b") show", b") pop")),
    "poppler": ("documents/pages.pdf", (b"(a", b"(b")),
    "xsltproc": ("documents/book.xml", (b"kind='a'", b"kind='c'")),
    "git-log": ("answers/git-log/expected", (b"Author:", b"author:")),
    "shell": ("words/text.txt", (b"e", b"x")),
}


def test_every_row_has_a_corruption():
    """redis has no input. Its corruption is below."""
    assert set(CORRUPTIONS) | set(STARTED) == set(ROWS)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_wrong_input_is_noticed(name, files):
    """Formulas without negations can be satisfied, and the solvers' status says so."""
    row, (path, change) = ROWS[name], CORRUPTIONS[name]
    content = (files / path).read_bytes()
    changed = content.replace(*change) if change else content + b"one more\n"
    assert changed != content
    try:
        (files / path).write_bytes(changed)
        result = run_row(row, files, None)
    finally:
        (files / path).write_bytes(content)
    assert result.status == (10 if row.status else 1), result.report()
    assert result.stderr and "Traceback" not in result.stderr, result.report()


@pytest.fixture(scope="module")
def forgetful(compiled, tmp_path_factory):
    """A library whose memcpy of 3000 bytes corrupts one, so that a value in redis-server changes."""
    source = tmp_path_factory.mktemp("forgetful") / "forgetful.c"
    source.write_text("""
        #include <stddef.h>
        void *memcpy(void *to, const void *from, size_t size)
        {
            volatile char *at = to;
            for (size_t i = 0; i < size; i++)
                at[i] = ((const volatile char *)from)[i];
            if (size == 3000)
                at[1500] ^= 1;
            return to;
        }
        """)
    return compiled(source, shared=True)


@pytest.mark.parametrize("name", STARTED)
def test_redis_notices_a_value_that_changed(name, files, forgetful):
    result = run_row(ROWS[name], files, forgetful)
    assert result.status == 1 and "redis-server" in result.stderr, result.report()


@pytest.fixture(scope="module")
def crashing(compiled, tmp_path_factory):
    """A library whose malloc ends the program by SIGSEGV at the thousandth call."""
    source = tmp_path_factory.mktemp("crashing") / "crashing.c"
    source.write_text("""
        #include <signal.h>
        #include <stddef.h>
        extern void *__libc_malloc(size_t);
        static unsigned calls;
        void *malloc(size_t size)
        {
            if (++calls == 1000)
                raise(SIGSEGV);
            return __libc_malloc(size);
        }
        """)
    return compiled(source, shared=True)


@pytest.mark.parametrize("name", ["redis-strings", "git-log"])
def test_a_program_that_crashes_ends_the_script_by_its_signal(name, files, crashing):
    result = run_row(ROWS[name], files, crashing)
    assert result.status == -signal.SIGSEGV, result.report()


def test_redis_without_its_library_is_an_error(files):
    result = run_row(ROWS["redis-strings"], files, "/no/such/library.so")
    assert result.status == 1 and "/no/such/library.so" in result.stderr, result.report()


def test_redis_leaves_nothing_behind(files):
    assert {path.name for path in (files / "redis").iterdir()} == {"stamp.json"}
    words = [*words_of(ROWS["redis-strings"], files)[:-2], "4000000", "strings"]
    script = subprocess.Popen(words, env=blackbox.environment())
    try:
        server = wait_for_child(script, "redis-server")
    finally:
        script.kill()
        script.wait()
    blackbox.wait_for(lambda: blackbox.has_ended(server), "the end of a server whose script was killed")


def wait_for_child(process, name):
    """The id of the process's child that runs the program."""
    def found():
        assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return next((int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == name), None)
    return blackbox.wait_for(found, f"{name} as a child")


def test_redis_reports_the_server(files, library):
    result = run_row(ROWS["redis-strings"], files, library)
    figures = dict(pair.split("=", 1) for pair in result.stdout.split("RESULT ")[1].split())
    assert int(figures["ops"]) > 1500 and float(figures["seconds"]) > 0
    assert float(figures["user_s"]) >= 0 and float(figures["sys_s"]) >= 0
    assert 0 < int(figures["rss_mean_kib"]) <= int(figures["rss_peak_kib"]) < 200_000
    assert int(figures["soft_faults"]) > 0


# ---- What is needed ----


def test_missing_programs_are_named_with_their_packages(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    wanted = {
        "redis-strings": [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
        "lua": [("lua5.4", "lua5.4")],
        "ld": [("ld", "binutils"), ("g++", "g++"), ("sh", "dash"), ("cmp", "diffutils")],
    }
    for name, needed in wanted.items():
        for message, (program, package) in zip(inputs.requirements(ROWS[name]), needed, strict=True):
            assert f" {program} " in message and f" {package})" in message, message
    assert inputs.requirements(replace(ROWS["lua"], group="driver", command=("bench_none",))) == []


def test_every_program_has_a_package():
    wanted = {name for needed in inputs.NEEDS.values() for name in needed}
    wanted.update(row.command[0] for row in ROWS.values() if "{" not in row.command[0])
    assert wanted <= set(inputs.PACKAGES)


def test_packages_are_those_that_ci_installs():
    """tools/packages/programs.txt and bench.txt have what the rows need, beside what every build has."""
    everywhere = {"binutils", "dash", "diffutils", "g++", "gcc", "python3", "util-linux"}
    for name in ("programs", "bench"):
        text = (blackbox.REPOSITORY / f"tools/packages/{name}.txt").read_text()
        listed = {package for line in text.splitlines() for package in line.partition("#")[0].strip().split("|")}
        assert set(inputs.PACKAGES.values()) - everywhere <= listed, name


def test_a_missing_file_is_named(monkeypatch):
    monkeypatch.setitem(inputs.NEEDS, "c_file", ("/usr/include/no/such.h",))
    (message,) = [text for text in inputs.requirements(ROWS["gcc"]) if "such.h" in text]
    assert "/usr/include/no/such.h" in message


def test_an_answer_is_made_again_for_another_input(tmp_path):
    """What a program is expected to print belongs to its command and its input."""
    row = replace(ROWS["git-log"], name="copy", command=("cat", "{files}/words/text.txt"), prepare="words", setting={})
    rows.prepare(row, tmp_path, 0.01)
    short = (tmp_path / "answers/copy/expected").read_bytes()
    rows.prepare(row, tmp_path, 0.02)
    assert (tmp_path / "answers/copy/expected").read_bytes() == (tmp_path / "words/text.txt").read_bytes() != short


@pytest.mark.parametrize("ended, wanted, status", [(3, 3, 0), (3, 0, 3), (0, 3, 1), (0, 0, 0)])
def test_checked_wants_one_status(tmp_path, ended, wanted, status):
    (tmp_path / "expected").write_text("said\n")
    result = blackbox.run(["sh", rows.WORKLOADS / "checked.sh", tmp_path / "expected", tmp_path / "output", str(wanted),
                           "/dev/null", "sh", "-c", f"echo said; exit {ended}"])
    assert result.status == status, result.report()
