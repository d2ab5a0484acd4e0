"""Protects replaying: all recorded calls in a valid order, on any allocator; and the refusal of damaged traces."""

import json
import re
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
    return folder


@pytest.mark.parametrize("options", [[], ["--threads-merged"], ["--no-touch"]], ids=["threads", "merged", "no-touch"])
def test_all_calls_on_both(recorded, library, options):
    for name, threads in (("crossing", 121), ("known", 1)):
        calls = str(info(recorded / name)["calls"])
        for preload in (None, library):
            found = replay(recorded / name, *options, preload=preload)
            assert found["ops"] == calls
            assert found["threads"] == ("1" if options == ["--threads-merged"] else str(threads))


def test_no_race_of_its_own(recorded, tmp_path):
    source = blackbox.REPOSITORY / "tools/trace"
    program = tmp_path / "replay"
    subprocess.run(["gcc", "-std=gnu17", "-O1", "-g", "-fno-builtin", "-fsanitize=thread", "-pthread", "-o", program,
                    source / "replay.c", source / "replay_ops.c", source / "trace_file.c",
                    blackbox.REPOSITORY / "bench/drivers/common.c"], check=True)
    result = blackbox.run([program, recorded / "crossing"])
    if "FATAL: ThreadSanitizer" in result.stderr:
        pytest.skip("ThreadSanitizer cannot reserve its addresses here (vm.overcommit_memory is 2)")
    assert result.status == 0 and "WARNING" not in result.stderr, result.report()


def test_a_wrong_allocator_is_noticed(recorded, compiled):
    wrong = compiled(OVERLAPPING, "-pthread", shared=True)
    result = blackbox.run([REPLAY, recorded / "crossing"], preload=wrong)
    assert result.status == 1, result.report()
    assert "hakmem-replay: block" in result.stderr


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
    assert "wrong" in result.stdout and "exit status 1" in result.stdout, result.report()


# ---- Files that are no complete trace ----


def checksummed(content):
    return content[:12] + struct.pack("<I", zlib.crc32(content[16:])) + content[16:]


def with_word(content, offset, form, value):
    return content[:offset] + struct.pack(form, value) + content[offset + struct.calcsize(form):]


def bad_files(content):
    """(name, content, whether `info` finds it too: only the replay walks through the order)."""
    threads = struct.unpack_from("<Q", content, 48)[0]
    ops_at = HEADER_BYTES + 24 * threads
    yield "empty", b"", True
    yield "foreign", b"#!/bin/sh\nexit 0\n" * 50, True
    yield "begun", content[:50], True
    yield "short", content[:-1], True
    yield "long", content + b"x", True
    yield "version", with_word(content, 8, "<I", 99), True
    for offset in (HEADER_BYTES + 3, ops_at + 5, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[offset] ^= 4
        yield f"bit at {offset}", bytes(changed), True
    yield "operations", checksummed(with_word(content, 24, "<Q", 1 << 60)), True
    yield "slot", checksummed(with_word(content, ops_at, "<I", 0xFFFFFFF0)), False
    yield "order", checksummed(with_word(content, ops_at + 4, "<I", 77)), False
    yield "kind", checksummed(with_word(content, ops_at + 15, "<B", 60)), False
    yield "creation", checksummed(with_word(content, HEADER_BYTES, "<Q", 5)), False


def test_bad_files_are_named(recorded, tmp_path):
    content = (recorded / "crossing").read_bytes()
    for name, bad, in_info in bad_files(content):
        path = tmp_path / "bad"
        path.write_bytes(bad)
        result = blackbox.run([REPLAY, path], timeout=20)
        assert result.status == 1 and str(path) in result.stderr, (name, result.report())
        if in_info:
            with pytest.raises(TraceError, match=re.escape(str(path))):
                read_trace(path)
    path.write_bytes(content[:-1])
    result = trace("info", path)
    assert result.status == 1 and str(path) in result.stderr and "Traceback" not in result.stderr, result.report()


def test_mistakes_are_named(recorded, tmp_path):
    for arguments, status, word in [
        (["replay", tmp_path / "none"], 1, f"{tmp_path}/none"),
        (["replay", "--allocator", "nosuch", recorded / "known"], 2, "nosuch"),
        (["replay", "--add", "mine=/nowhere.so", recorded / "known"], 1, "/nowhere.so"),
        (["replay", "--rounds", "0", recorded / "known"], 2, "--rounds"),
    ]:
        result = trace(*arguments)
        assert result.status == status and word in result.stderr, result.report()
    assert str(tmp_path / "none") in blackbox.run([REPLAY, tmp_path / "none"]).stderr
    assert blackbox.run([REPLAY]).status == 2
    assert blackbox.run([REPLAY, "--wrong", recorded / "known"]).status == 2
