"""Protects replaying: all recorded calls in a valid order, on any allocator; and the refusal of damaged traces."""

import json
import struct
import subprocess
import zlib

import blackbox
import pytest
from hakmem.trace.file import read_trace
from hakmem.trace.header import TraceError
from tracing import REPLAY, SOURCES, info, record, replay, trace

OVERLAPPING = SOURCES.parent / "bench/overlapping_malloc.c"
HEADER_BYTES = 112


@pytest.fixture(scope="module")
def recorded(compiled, tmp_path_factory):
    """Traces by name: threads that exchange blocks, and every kind of call."""
    folder = tmp_path_factory.mktemp("traces")
    record(folder / "crossing", compiled(SOURCES / "crossing.c", "-pthread"), 6, 20)
    record(folder / "known", compiled(SOURCES / "known.c"))
    record(folder / "sort", "sort", "--parallel=2", __file__)
    return folder


@pytest.mark.parametrize("name", ["crossing", "known", "sort"])
@pytest.mark.parametrize("options", [[], ["--threads-merged"], ["--no-touch"]], ids=["threads", "merged", "no-touch"])
def test_all_calls_on_both(recorded, library, name, options):
    calls = str(info(recorded / name)["calls"])
    for preload in (None, library):
        assert replay(recorded / name, *options, preload=preload)["ops"] == calls


def test_order_holds_every_time(recorded, library):
    calls = str(info(recorded / "crossing")["calls"])
    for turn in range(30):
        assert replay(recorded / "crossing", preload=library if turn % 2 else None)["ops"] == calls


def test_threads_are_threads(recorded):
    assert replay(recorded / "crossing")["threads"] == "121"
    assert replay(recorded / "crossing", "--threads-merged")["threads"] == "1"


def test_no_race_of_its_own(recorded, tmp_path):
    source = blackbox.REPOSITORY / "tools/trace"
    program = tmp_path / "replay"
    subprocess.run(["gcc", "-std=gnu17", "-O1", "-g", "-fno-builtin", "-fsanitize=thread", "-pthread", "-o", program,
                    source / "replay.c", source / "replay_ops.c", source / "trace_file.c",
                    blackbox.REPOSITORY / "bench/drivers/common.c"], check=True)
    for _ in range(3):
        result = blackbox.run([program, recorded / "crossing"], timeout=60)
        assert result.status == 0 and "WARNING" not in result.stderr, result.report()


def test_a_wrong_allocator_is_noticed(recorded, compiled):
    wrong = compiled(OVERLAPPING, "-pthread", shared=True)
    result = blackbox.run([REPLAY, recorded / "crossing"], preload=wrong)
    assert result.status == 1, result.report()
    assert "lost its contents" in result.stderr


def test_killed_programs_replay(compiled, tmp_path):
    record(tmp_path / "trace", compiled(SOURCES / "ends.c"), "kill", status=137)
    assert replay(tmp_path / "trace")["ops"] == str(info(tmp_path / "trace")["calls"])


def test_comparison(recorded):
    result = trace("replay", "--allocator", "glibc", "--allocator", "hakmem", "--rounds", 2, "--json",
                   recorded / "crossing")
    assert result.status == 0, result.report()
    found = json.loads(result.stdout)
    assert set(found["entries"]) == {"glibc", "hakmem"}
    assert len(found["samples"]) == 4
    assert all(sample["ops"] == found["calls"] and sample["peak_rss_kib"] > 500 for sample in found["samples"])
    assert found["entries"]["glibc"]["ratios"]["time"]["rounds"] == 2
    table = trace("replay", "--allocator", "glibc", "--rounds", 1, recorded / "known")
    assert table.status == 0 and "glibc" in table.stdout, table.report()


def test_an_allocator_that_fails_is_shown(recorded, compiled):
    wrong = compiled(OVERLAPPING, "-pthread", shared=True)
    result = trace("replay", "--allocator", "glibc", "--add", f"wrong={wrong}", "--rounds", 1, recorded / "crossing")
    assert result.status == 1, result.report()
    assert "wrong: failed: exit status 1: hakmem-replay: block" in result.stdout, result.report()


# ---- Files that are no complete trace ----


def checksummed(content):
    return content[:12] + struct.pack("<I", zlib.crc32(content[16:])) + content[16:]


def with_word(content, offset, form, value):
    return content[:offset] + struct.pack(form, value) + content[offset + struct.calcsize(form):]


def bad_files(content):
    """(name, content, message, whether `info` finds it too: only the replay walks through the order)."""
    threads = struct.unpack_from("<Q", content, 48)[0]
    ops_at = HEADER_BYTES + 24 * threads
    yield "empty", b"", "no trace", True
    yield "foreign", b"#!/bin/sh\nexit 0\n" * 50, "no trace", True
    yield "begun", content[:50], "truncated", True
    yield "short", content[:-1], "truncated", True
    yield "long", content + b"x", "header says", True
    yield "version", with_word(content, 8, "<I", 99), "version", True
    for offset in (HEADER_BYTES + 3, ops_at + 5, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[offset] ^= 4
        yield f"bit at {offset}", bytes(changed), "checksum", True
    yield "operations", checksummed(with_word(content, 24, "<Q", 1 << 60)), "damaged", True
    yield "slot", checksummed(with_word(content, ops_at, "<I", 0xFFFFFFF0)), "damaged", False
    yield "order", checksummed(with_word(content, ops_at + 4, "<I", 77)), "damaged", False
    yield "kind", checksummed(with_word(content, ops_at + 15, "<B", 60)), "damaged", False
    yield "creation", checksummed(with_word(content, HEADER_BYTES, "<Q", 5)), "damaged", False


def test_bad_files_are_named(recorded, tmp_path):
    content = (recorded / "crossing").read_bytes()
    for name, bad, message, in_info in bad_files(content):
        path = tmp_path / "bad"
        path.write_bytes(bad)
        result = blackbox.run([REPLAY, path], timeout=20)
        assert result.status == 1 and str(path) in result.stderr and message in result.stderr, (name, result.report())
        if in_info:
            with pytest.raises(TraceError) as error:
                read_trace(path)
            assert str(path) in error.value.message and message in error.value.message, name
    path.write_bytes(content[:-1])
    result = trace("info", path)
    assert result.status == 1 and f"Error: {path} is truncated" in result.stderr, result.report()


def test_mistakes_are_named(recorded, tmp_path):
    for arguments, message in [
        (["info", tmp_path / "none"], f"cannot read {tmp_path}/none: No such file"),
        (["replay", tmp_path / "none"], f"cannot read {tmp_path}/none: No such file"),
        (["replay", "--allocator", "nosuch", recorded / "known"], "no such allocator: nosuch"),
        (["replay", "--add", "mine=/nowhere.so", recorded / "known"], "/nowhere.so"),
        (["replay", "--rounds", "0", recorded / "known"], "--rounds"),
    ]:
        result = trace(*arguments)
        assert result.status == (2 if message in ("--rounds", "no such allocator: nosuch") else 1), result.report()
        assert message in result.stderr, result.report()
    assert blackbox.run([REPLAY, tmp_path / "none"]).stderr.count("cannot open") == 1
    assert blackbox.run([REPLAY]).status == 2
    assert blackbox.run([REPLAY, "--wrong", recorded / "known"]).status == 2
