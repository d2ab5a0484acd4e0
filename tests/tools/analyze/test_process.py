"""Protects `hakmem advise PID`: on HAKMEM by its figures, on glibc by its heaps, on others by what is known."""

import ctypes.util
import json
import os
import re
import subprocess
import sys
import time

import pytest
from conftest import BUILD, HERE, hakmem

import blackbox
from hakmem.analyze import process as live
from hakmem.analyze.glibc import walk
from hakmem.analyze.process import Findings, advice_on
from hakmem.analyze.show import command_text
from hakmem.processes import Process

KIB, MIB = 1 << 10, 1 << 20


def advice(pid, *arguments):
    result = hakmem("advise", *arguments, "--json", str(pid))
    assert result.status == 0, result.report()
    return json.loads(result.stdout)


def rss(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


# ---- On HAKMEM ----

def test_what_is_advised_for_an_idle_process_saves_what_is_said(holding, library):
    """The test follows the advice, and the memory goes."""
    words = (16 * KIB, 4000, 4000, 1, 2)  # twice: a process of one thread keeps what it wanted again
    process = holding(*words, preload=library)
    found = advice(process.pid)
    (first, *_) = found["advice"]
    assert found["kind"] == "hakmem" and found["idle"]
    assert first["setting"] == "HAKMEM_PURGE_THREAD=always" and first["saves"] > 40 * MIB
    name, _, value = first["setting"].partition("=")
    followed = holding(*words, preload=library, env={name: value})
    deadline = time.monotonic() + blackbox.HANG
    while rss(process.pid) - rss(followed.pid) < first["saves"] * 0.9 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rss(process.pid) - rss(followed.pid) >= first["saves"] * 0.9
    assert advice(followed.pid, "--seconds", "0.1")["advice"] == []


def test_a_process_that_holds_what_it_has_needs_nothing(holding, library):
    process = holding(1000, 20000, 1, 1, preload=library)
    found = advice(process.pid, "--seconds", "0.1")
    assert found["advice"] == [] and found["parts"]["live"] > 20000 * 1000
    assert abs(sum(found["parts"].values()) - found["rss"]) <= found["rss"] / 50
    assert f"({process.pid})" in hakmem("advise", "--seconds", "0.1", process.pid).stdout


def findings(options=None, idle=False, seconds=2.0, **parts):
    whole = dict.fromkeys(live.WHAT, 0) | parts
    defaults = {"purge_delay": 500, "purge_thread": 0, "thp": 0, "cache_bytes": MIB}
    return Findings(1, "x", seconds, sum(whole.values()), whole, defaults | (options or {}), {}, idle)


class Shot:
    class totals:
        live_threads = 4


@pytest.mark.parametrize("found, settings", [
    (findings(live=100 * MIB, free=40 * MIB, idle=True), ["HAKMEM_PURGE_THREAD=always"]),
    (findings(live=100 * MIB, free=40 * MIB, idle=True, options={"purge_thread": 2}), ["HAKMEM_PURGE_DELAY=100"]),
    (findings(live=100 * MIB, free=40 * MIB, idle=True, options={"purge_delay": 9000}), ["HAKMEM_PURGE_DELAY=100"]),
    (findings(live=100 * MIB, free=40 * MIB), ["HAKMEM_PURGE_DELAY=100"]),
    (findings(live=100 * MIB, free=40 * MIB, options={"purge_delay": 50}), []),
    (findings(live=100 * MIB, free=5 * MIB), []),
    (findings(live=10 * MIB, free=3 * MIB), []),
    (findings(live=50 * MIB, cached=30 * MIB), ["HAKMEM_CACHE_BYTES=256K"]),
    (findings(live=50 * MIB, cached=30 * MIB, options={"cache_bytes": 16 * KIB}), []),
    (findings(live=50 * MIB, huge_pages=30 * MIB), ["HAKMEM_THP=never"]),
    (findings(live=50 * MIB, huge_pages=30 * MIB, options={"thp": 1}), []),
    (findings(live=50 * MIB, fragmentation=50 * MIB, other=50 * MIB), []),
])
def test_what_each_part_speaks_for(found, settings):
    assert [one.setting for one in advice_on(found, Shot)] == settings


def test_choices_are_numbered_as_in_the_library():
    """The numbers in a process mean what the table says."""
    text = (blackbox.REPOSITORY / "docs/options.md").read_text()
    for name, choices in (("PURGE_THREAD", live.PURGE_THREAD), ("THP", live.THP)):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `HAKMEM_{name}`")]
        assert row.split("|")[3].split() == [f"{choice}," for choice in choices[:-1]] + [choices[-1]]


# ---- On glibc ----

def test_the_free_memory_of_glibcs_heaps_is_found(holding):
    """Three threads: the main heap and two arenas. 49 of 50 blocks are free."""
    process = holding(500, 20000, 50, 3)
    found = advice(process.pid)
    assert (found["kind"], found["server"], found["threads"], found["arenas"]) == ("other", "glibc", 3, 2)
    assert [heap["kind"] for heap in found["heaps"]] == ["main", "arena", "arena"]
    held, freed = 20000 // 50 * 512, 20000 * 49 // 50 * 512
    for heap in found["heaps"]:
        assert freed - 64 * KIB <= heap["free"] <= heap["end"] - heap["start"] - held
        # Every 50th block keeps at most two pages.
        assert freed - 400 * 2 * 4 * KIB <= heap["free_resident"] <= heap["free"]
        assert 400 <= heap["blocks"] <= 1000
    assert found["free_resident"] == sum(heap["free_resident"] for heap in found["heaps"])
    assert found["brk_dirty"] <= found["private_dirty"] <= found["rss"]


def test_what_is_said_of_a_process_on_glibc(holding):
    process = holding(500, 20000, 50, 1)
    text = hakmem("advise", str(process.pid)).stdout
    assert str(process.pid) in text and "glibc" in text and "HAKMEM_PURGE_THREAD=always" in text
    assert re.search(r"hakmem analyze [^\n]*-- /", text) and "hakmem run -- /" in text, "commands to type"


@pytest.mark.parametrize("words, text", [
    (("/bin/x", "a b"), "/bin/x 'a b'"), (("redis-server *:6379",), "redis-server ARGUMENTS"), ((), "PROGRAM")])
def test_the_command_to_type(words, text):
    assert command_text(Process(1, 0, "redis-server", words, "x")) == text


@pytest.mark.parametrize("sizes, free", [
    ([0x21, 0x31, 0x41], [(0x50, 0x90)]),
    ([0x21, 0x31, 0x40, 0x41], [(0x20, 0x50), (0x90, 0xd0)]),
    ([0x21, 0x39, 0x41], None),  # not a multiple of 16
    ([0x21, 0x1001, 0x41], None),  # beyond the end
    ([0x11, 0x41], None),  # below the least size
])
def test_a_walk(sizes, free):
    """Blocks with these size words in a row. A word without its lowest bit means that the block before is free."""
    data = bytearray(sum(size & ~7 for size in sizes) if free else 0x200)
    at = 0
    for size in sizes:
        if at + 16 <= len(data):
            data[at + 8:at + 16] = size.to_bytes(8, "little")
        at += size & ~7
    found = walk(bytes(data), 0, len(data))
    assert found == (None if free is None else (free, len(sizes)))


# ---- On others ----

@pytest.mark.skipif(not ctypes.util.find_library("jemalloc"), reason="libjemalloc is not installed")
def test_another_allocator_is_named(holding):
    process = holding(500, 2000, 50, 1, preload="libjemalloc.so.2")
    found = advice(process.pid)
    assert found["server"] == "jemalloc" and found["heaps"] == [] and found["free_resident"] is None
    assert "jemalloc" in hakmem("advise", str(process.pid)).stdout


def test_a_static_program_cannot_be_helped(compiled):
    program = compiled(HERE / "holds.c", "-static")
    process = subprocess.Popen([program, "100", "10", "1", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        text = hakmem("advise", str(process.pid)).stdout
        assert str(process.pid) in text and "static" in text and "hakmem run" not in text
    finally:
        process.communicate()


# Becomes another user when all modules are loaded, because that user may not look into the checkout.
BY_NOBODY = """
import os, sys
from hakmem.cli import main
main(["advise", sys.argv[1]], standalone_mode=False)
os.setgid(65534)
os.setuid(65534)
main(["advise", sys.argv[1]])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_anothers_process(holding):
    process = holding(100, 10, 1, 1)
    result = blackbox.run([sys.executable, "-c", BY_NOBODY, process.pid], cwd="/",
                          env={"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "HAKMEM_BUILD_DIR": str(BUILD)})
    assert result.status == 1 and str(process.pid) in result.stderr, result.report()
    assert "Traceback" not in result.stderr


def test_threads_of_the_kernel():
    kernel = next((entry for entry in os.listdir("/proc") if entry.isdigit() and
                   not os.path.exists(f"/proc/{entry}/exe") and not blackbox.has_ended(entry)), None)
    if kernel is None:
        pytest.skip("no thread of the kernel is in this /proc")
    result = hakmem("advise", kernel)
    assert result.status == 1 and "Traceback" not in result.stderr, result.report()
