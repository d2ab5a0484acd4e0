"""Protects the rows of real programs, small: right on the system's malloc and on HAKMEM, and loud if wrong."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.bench import inputs, rows  # noqa: E402

SCALE = 0.05
WRITTEN_HERE = ("{workloads}", "script.sql")
ROWS = {row.name: row for row in rows.load() if row.group == "program" and any(
    part in word for part in WRITTEN_HERE for word in row.command)}
MAKERS = sorted({row.prepare for row in ROWS.values()})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The inputs of every row, small."""
    folder = tmp_path_factory.mktemp("files")
    for name in MAKERS:
        getattr(inputs, name)(folder, SCALE)
    return folder


def words_of(row, files):
    """The row's command with little work. redis counts it in requests, the others in rounds."""
    words = row.argv(files)
    if row.scale_at is not None:
        words[row.scale_at] = "1500" if row.name == "redis" else "1"
    return words


def run_row(row, files, library, **extra):
    env = {**row.setting, **extra}
    if row.preload == "child":
        env["BENCH_PRELOAD"] = str(library or "")
        return blackbox.run(words_of(row, files), env=env)
    return blackbox.run(words_of(row, files), env=env, preload=library)


def test_every_kind_of_program_has_a_row():
    assert {"python-json", "python-ast", "python-mix", "python-default", "sqlite", "redis", "gcc", "gxx", "git-log",
            "git-pack", "lua", "perl", "sort"} <= set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_row_is_right(name, files, library, tmp_path):
    """The program's malloc is bound to HAKMEM, but not that of a script that only starts it."""
    row = ROWS[name]
    assert inputs.requirements(row) == []
    for preload in (None, library):
        log = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(tmp_path / "log")} if preload else {}
        result = run_row(row, files, preload, **log)
        assert (result.status, result.stderr) == (0, ""), result.report()
    bound = programs_bound_to(tmp_path, library)
    started = {"gcc": "cc1", "gxx": "cc1plus", "redis": "redis-server", "git-log": "git", "git-pack": "git",
               "sort": "sort"}
    wanted = started.get(name, Path(row.command[0]).name)
    assert wanted in bound, bound
    if row.preload == "child":
        assert bound == {wanted}, "the script's helpers got the allocator, too"


def test_redis_on_the_system_has_the_malloc_of_the_c_library(files, tmp_path):
    """Debian's redis-server is linked with jemalloc, which would otherwise serve the run without a preload."""
    result = run_row(ROWS["redis"], files, None, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "log"))
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
    """The contents of each file below the folder, and the targets of links."""
    found = {}
    for path in sorted(folder.rglob("*")):
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
    "python-json": ("json/documents.jsonl", (b'"zip": ', b'"zip": 1')),
    "python-default": ("json/documents.jsonl", (b'"price": ', b'"price": 1')),
    "python-ast": ("python/dataclasses.py", (b"MISSING = ", b"MISSINg = ")),
    "python-mix": ("script/script.txt", (b" = ", b" = 1 + ")),
    "sqlite": ("sqlite/script.sql", (b"(7,", b"(-7,")),
    "gcc": ("gcc/work.c", (b"a + b * c", b"a - b * c")),
    "gxx": ("gxx/work.ii", (b"use_0", b"use_1")),
    "git-log": ("git/expected.log", (b"Author:", b"author:")),
    "git-pack": ("git/expected.pack", (b"PACK", b"PECK")),
    "lua": ("words/text.txt", None),
    "perl": ("words/text.txt", None),
    "sort": ("lines/lines.txt", (b"a", b"b")),
}


def test_every_row_has_a_corruption():
    """redis has no input. Its corruption is below."""
    assert set(CORRUPTIONS) | {"redis"} == set(ROWS)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_wrong_input_is_noticed(name, files, tmp_path):
    path, change = CORRUPTIONS[name]
    folder = Path(path).parts[0]
    shutil.copytree(files / folder, tmp_path / folder, symlinks=True)
    content = (tmp_path / path).read_bytes()
    changed = content.replace(*change, 1) if change else content + b"one more\n"
    assert changed != content
    (tmp_path / path).write_bytes(changed)
    result = run_row(ROWS[name], tmp_path, None)
    assert result.status == 1, result.report()
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


def test_redis_notices_a_value_that_changed(files, forgetful):
    result = run_row(ROWS["redis"], files, forgetful)
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


@pytest.mark.parametrize("name", ["redis", "git-log"])
def test_a_program_that_crashes_ends_the_script_by_its_signal(name, files, crashing):
    result = run_row(ROWS[name], files, crashing)
    assert result.status == -signal.SIGSEGV, result.report()


def test_redis_without_its_library_is_an_error(files):
    result = run_row(ROWS["redis"], files, "/no/such/library.so")
    assert result.status == 1 and "/no/such/library.so" in result.stderr, result.report()


def test_redis_leaves_nothing_behind(files):
    assert {path.name for path in (files / "redis").iterdir()} == {"stamp.json"}
    script = subprocess.Popen(words_of(ROWS["redis"], files)[:-1] + ["4000000"], env=blackbox.environment())
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
    result = run_row(ROWS["redis"], files, library)
    figures = dict(pair.split("=", 1) for pair in result.stdout.split("RESULT ")[1].split())
    assert int(figures["ops"]) > 1500 and float(figures["seconds"]) > 0
    assert float(figures["user_s"]) >= 0 and float(figures["sys_s"]) >= 0
    assert 0 < int(figures["rss_mean_kib"]) <= int(figures["rss_peak_kib"]) < 200_000
    assert int(figures["soft_faults"]) > 0


# ---- What is needed ----


def test_missing_programs_are_named_with_their_packages(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    wanted = {
        "redis": [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
        "lua": [("lua5.4", "lua5.4")],
        "gxx": [("sh", "dash"), ("g++", "g++"), ("cc1plus", "g++"), ("cmp", "diffutils")],
    }
    for name, needed in wanted.items():
        for message, (program, package) in zip(inputs.requirements(ROWS[name]), needed, strict=True):
            assert f" {program} " in message and f" {package})" in message, message
    assert inputs.requirements(replace(ROWS["lua"], group="driver", command=("bench_none",))) == []


def test_every_program_has_a_package():
    programs = {name for needed in inputs.NEEDS.values() for name in needed}
    programs.update(row.command[0] for row in ROWS.values())
    assert programs <= set(inputs.PACKAGES)


@pytest.mark.parametrize("name,arguments", [
    ("gcc", inputs.CC1_ARGUMENTS), ("gxx", inputs.CC1PLUS_ARGUMENTS), ("git-log", inputs.LOG_ARGUMENTS),
    ("git-pack", inputs.PACK_ARGUMENTS),
])
def test_answers_are_made_by_the_command_of_the_row(name, arguments):
    assert " ".join(arguments) in " ".join(ROWS[name].command)
    if name.startswith("git"):
        assert inputs.GIT_SETTING.items() <= ROWS[name].setting.items()
