"""Protects recording: each call is noted once and in order, with any number of threads and any end of the program."""

import errno
import os
import resource
from collections import Counter

import blackbox
import pytest
from tracing import BUILD, SOURCES, info, record, trace

from hakmem.trace import record as recording

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def known(compiled):
    return compiled(SOURCES / "known.c")


@pytest.fixture
def ends(compiled):
    return compiled(SOURCES / "ends.c")


@pytest.fixture
def crossing(compiled):
    return compiled(SOURCES / "crossing.c", "-pthread")


def test_every_kind_of_call(known, tmp_path):
    """Counts, sizes, the peak and what is left, without those of a program that only starts."""
    record(tmp_path / "empty", known, "empty")
    record(tmp_path / "known", known)
    empty, found = info(tmp_path / "empty"), info(tmp_path / "known")
    kinds = Counter(found["kinds"])
    kinds.subtract(empty["kinds"])
    assert {name: count for name, count in kinds.items() if count} == {
        "malloc": 17, "calloc": 3, "realloc": 2, "reallocarray": 1, "realloc to free": 1, "posix_memalign": 1,
        "aligned_alloc": 1, "memalign": 1, "valloc": 1, "pvalloc": 1, "free": 22}
    assert found["free_null"] - empty["free_null"] == 2
    assert found["failed"] - empty["failed"] == 3
    assert found["aligned_above_16"] == 5
    assert found["foreign_frees"] == found["lost_frees"] == found["in_flight"] == 0
    sizes = Counter({size["up_to"]: size["count"] for size in found["sizes"]})
    sizes.subtract({size["up_to"]: size["count"] for size in empty["sizes"]})
    assert {up_to: count for up_to, count in sizes.items() if count} == {
        16: 3, 64: 1, 128: 13, 1024: 5, 4096: 1, 8192: 2, 1 << 20: 3}
    before = empty["live_at_end_bytes"]
    assert found["peak_live_bytes"] - before == 3 * (1 << 20) + 4 * 1000
    assert found["live_at_end_bytes"] - before == 2 * (1 << 20) + 3 * 1000
    assert found["live_at_end_blocks"] - empty["live_at_end_blocks"] == 5


def test_threads(crossing, tmp_path):
    record(tmp_path / "trace", crossing, 4, 10)
    found = info(tmp_path / "trace")
    workers = found["threads"][1:]
    assert len(workers) == 40
    assert all(thread == {"calls": 64 + 16 + 64, "ended": True} for thread in workers)
    assert found["threads_at_once"] <= 5
    assert found["kinds"]["realloc"] == 40 * 16
    assert found["lives"]["freed_by_other_thread"] == 40 * 64
    assert found["foreign_frees"] == found["lost_frees"] == found["in_flight"] == 0


@pytest.mark.parametrize("how, status, end", [
    ("kill", 137, {"signal": "SIGKILL"}), ("abort", 134, {"signal": "SIGABRT"}), ("_exit", 7, {"status": 7})])
def test_what_was_done_before_the_end_is_kept(ends, tmp_path, how, status, end):
    record(tmp_path / "trace", ends, how, status=status)
    found = info(tmp_path / "trace")
    assert found.items() >= end.items()
    assert found["kinds"]["malloc"] >= 5000
    assert found["lives"]["freed"] >= 1000
    assert found["truncated"] is None


KILLED = """"$0" 4 1000000 &
until tasks=(/proc/$!/task/*); ((${#tasks[@]} > 4)); do :; done
kill -KILL $!
wait $!"""


def test_killed_at_any_moment(crossing, tmp_path):
    """While four threads and the main one run. Each is in one call at most, which is lost with what it frees."""
    record(tmp_path / "all", "bash", "-c", KILLED, crossing, options=["--children"], status=137)
    (found,) = (each for each in map(info, tmp_path.glob("all.*")) if len(each["threads"]) > 4)
    assert found["in_flight"] <= 5 and found["lost_frees"] <= 5


def test_a_child_is_not_its_parent(ends, tmp_path):
    record(tmp_path / "trace", ends, "fork")
    assert list(tmp_path.iterdir()) == [tmp_path / "trace"]
    found = info(tmp_path / "trace")
    assert found["kinds"] == {"malloc": 5020, "free": 1000}


def test_children_on_request(ends, tmp_path):
    record(tmp_path / "trace", ends, "fork", options=["--children"])
    [child] = tmp_path.glob("trace.*")
    assert info(tmp_path / "trace")["kinds"] == {"malloc": 5020, "free": 1000}
    found = info(child)
    assert found["kinds"] == {"malloc": 300}
    assert found["foreign_frees"] == 100
    assert child.suffix == f".{found['child']}" == f".{found['pid']}"


def test_the_program_that_a_wrapper_becomes(ends, tmp_path):
    command = ["sh", "-c", 'exec "$0" _exit', ends]
    record(tmp_path / "trace", *command, status=7)
    assert info(tmp_path / "trace")["kinds"] == {"malloc": 5000, "free": 1000}
    record(tmp_path / "all", *command, status=7, options=["--children"])
    assert info(tmp_path / "all")["kinds"] == {"malloc": 5000, "free": 1000}
    assert len(list(tmp_path.glob("all.*"))) == 1


def test_operators_of_cxx(compiled, library, tmp_path):
    program = compiled(SOURCES / "operators.cpp", "-O0")
    found = {}
    for name, preload in (("system", None), ("hakmem", library)):
        record(tmp_path / name, program, preload=preload)
        found[name] = info(tmp_path / name)
    # HAKMEM has its own operators, which do not call malloc.
    assert found["hakmem"]["kinds"] == found["system"]["kinds"]
    assert [thread["ended"] for thread in found["hakmem"]["threads"]] == [False, True, True]
    assert found["hakmem"]["threads"][1]["calls"] == 2
    assert found["hakmem"]["kinds"]["aligned_alloc"] == 2
    assert found["hakmem"]["kinds"]["malloc"] >= 5
    assert found["hakmem"]["lost_frees"] == 0


def test_operators_that_llvm_calls(compiled, library, tmp_path):
    """HAKMEM has them. Where nobody else has, the recorder serves them by the usual operators."""
    program = compiled(SOURCES / "llvm_operators.cpp", "-O0")
    for name, preload in (("system", None), ("hakmem", library)):
        record(tmp_path / name, program, preload=preload)
        found = info(tmp_path / name)
        assert found["kinds"]["aligned_alloc"] == 6 * 100, found
        assert 6 * 100 <= found["kinds"]["malloc"] < 7 * 100
        assert found["lost_frees"] == 0


def test_a_program_of_many_libraries(tmp_path):
    """Its output is the same as without, and nothing is lost."""
    plain = blackbox.run(["sort", "--parallel=2", __file__])
    assert record(tmp_path / "trace", "sort", "--parallel=2", __file__).stdout == plain.stdout
    script = """import json, subprocess, threading
subprocess.run(["true"], check=True)
threads = [threading.Thread(target=lambda: json.dumps([{"a": i} for i in range(3000)])) for _ in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]"""
    record(tmp_path / "trace", SYSTEM_PYTHON, "-c", script)
    found = info(tmp_path / "trace")
    assert len(found["threads"]) == 4
    assert found["calls"] > 1000
    assert found["lost_frees"] == found["in_flight"] == 0


def test_no_room_is_said(ends, tmp_path):
    """What was recorded before is kept: there is room for three chunks of 256 KiB, of records of 24 bytes."""
    result = record(tmp_path / "trace", ends, "many", limits={resource.RLIMIT_FSIZE: 1 << 20})
    full = os.strerror(errno.EFBIG)
    assert full in result.stderr, result.report()
    found = info(tmp_path / "trace")
    assert found["truncated"] == full
    assert 2 * (256 << 10) // 24 < found["kinds"]["malloc"] <= 3 * (256 << 10) // 24


def test_a_program_that_cannot_be_recorded(compiled, tmp_path):
    static = compiled(SOURCES / "known.c", "-static")
    result = record(tmp_path / "trace", static, "empty", status=1)
    assert str(static) in result.stderr, result.report()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_recording_leaves_nothing(tmp_path, monkeypatch, capsys):
    """As on a full disk, where the recorder makes its file and cannot write to it."""
    monkeypatch.setenv("HAKMEM_BUILD_DIR", str(BUILD))

    def run(command, raw, children):
        raw.touch()
        return 0
    monkeypatch.setattr(recording, "run_recorded", run)
    assert recording.record_program(["true"], tmp_path / "trace", False) == 1
    said = capsys.readouterr().err
    assert str(tmp_path) in said or "0 bytes" in said, said
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_named(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    for arguments, status, word in [
        (["-o", tmp_path / "no" / "trace", "--", "true"], 1, f"{tmp_path}/no/trace"),
        (["-o", "/proc/trace", "--", "true"], 1, "/proc/trace"),
        (["-o", tmp_path, "--", "true"], 2, f"-o {tmp_path}"),
        (["-o", other, "--", "true"], 1, str(other)),
        (["-o", tmp_path / "trace", "--", "no-such-program"], 127, "no-such-program"),
        (["-o", tmp_path / "trace"], 2, "PROGRAM"),
    ]:
        result = trace("record", *arguments)
        assert result.status == status
        assert word in result.stderr, result.report()
    assert other.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [other]


def test_tables(crossing, tmp_path):
    """They have the figures that are in the JSON."""
    record(tmp_path / "trace", crossing, 2, 1)
    result, found = trace("info", tmp_path / "trace"), info(tmp_path / "trace")
    assert result.status == 0, result.report()
    for figure in (found["calls"], found["kinds"]["malloc"], found["lives"]["freed_by_other_thread"]):
        assert f"{figure:,}" in result.stdout, result.report()
