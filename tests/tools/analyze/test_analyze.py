"""Protects `hakmem analyze -- PROGRAM`: it names a planted fault first, and tells what its runs saw."""

import json
from collections import Counter

import pytest
from conftest import BUILD, HERE, hakmem

import blackbox
import machine
from hakmem.analyze.bottlenecks import number_of, rank
from hakmem.analyze.observe import ALLOCATOR, LOADING, PROGRAM, START, Observed, Part, part_of, throughput_of
from hakmem.bench.calls import Tally, parse_stacks

RANDOM_MIXED = (BUILD / "bin/bench_random_mixed_hakmem", 200000, 4096, 42)
STRACE = machine.needs("ptrace", "program:strace")


def analysis(*words, **more):
    result = hakmem("analyze", "--json", *words, timeout=120, **more)
    assert result.status == 0, result.report()
    return json.loads(result.stdout)


def kinds(found):
    return [one["kind"] for one in found["bottlenecks"]]


# ---- Planted faults ----

def test_without_a_fault_first_touches_are_first():
    found = analysis("--", *RANDOM_MIXED)
    assert kinds(found)[0] == "first touches"
    assert found["allocator"] == "hakmem" and found["figures"]["soft_faults"] > 0
    assert "operations a second" in found["throughput"]
    assert found["statistics"]["counters"]["malloc_misses"] > 0


def test_a_front_that_is_too_small_is_first():
    found = analysis("--set", "fc_cap=8", "--", *RANDOM_MIXED)
    first = found["bottlenecks"][0]
    assert first["kind"] == "front" and "HAKMEM_FC_CAP=8" in first["remedy"]
    counters = found["statistics"]["counters"]
    assert counters["flushes"] < first["count"] <= counters["refills"] + counters["flushes"]


@STRACE
def test_a_cache_of_empties_that_is_off_is_first(compiled):
    """The user's variable counts as --set does."""
    program = compiled(HERE / "planted.c")
    assert kinds(analysis("--", program, "waves"))[0] != "empties"
    first = analysis("--", program, "waves", env={"HAKMEM_SS_LRU_SIZE": "0"})["bottlenecks"][0]
    assert first["kind"] == "empties" and "HAKMEM_SS_LRU_SIZE=0" in first["remedy"]


@STRACE
def test_empties_that_go_back_at_once_are_first_on_the_documents_line(compiled):
    drivers = blackbox.REPOSITORY / "bench/drivers"
    program = compiled(HERE / "trims.c", drivers / "random_mixed.c", drivers / "common.c", f"-I{drivers}",
                       "-lm")
    first = analysis("--", program, *RANDOM_MIXED[1:])["bottlenecks"][0]
    assert first["kind"] == "empties" and first["count"] > 1000


@STRACE
def test_a_system_call_on_every_foreign_free_is_first(compiled):
    found = analysis("--", compiled(HERE / "planted.c"), "foreign")
    first = found["bottlenecks"][0]
    assert first["kind"] == "frees" and first["count"] >= 4096
    (call,) = (one for one in found["calls"] if one["call"] == "mincore")
    assert call["count"] == 4096
    assert [(by["owner"], by["function"], by["count"]) for by in call["by"]] == [(ALLOCATOR, "free", 4096)]
    # The others lie in the cache of the thread that freed them, which holds at most 256 of a size.
    assert found["statistics"]["counters"]["remote_out"] >= 4096 - 256


# ---- What the page holds ----

@STRACE
def test_every_call_is_counted_and_has_a_caller():
    found = analysis("--", *RANDOM_MIXED)
    for one in found["calls"]:
        assert one["count"] == sum(by["count"] for by in one["by"]), one
    by = [(one["call"], each["owner"]) for one in found["calls"] for each in one["by"]]
    assert ("write", PROGRAM) in by and ("execve", LOADING) in by and ("mmap", START) in by


def test_what_the_machine_lacks_is_said():
    found = analysis("--set", "fc_cap=8", "--", *RANDOM_MIXED, env={"PATH": "/nonexistent"})
    assert found["calls"] == [] and found["faults"] == []
    assert all(any(word in note for note in found["notes"]) for word in ("strace", "perf"))
    assert kinds(found)[:2] == ["front", "first touches"]


def test_others_stand_beside_it():
    found = analysis("--against", "glibc", "--", BUILD / "bin/bench_random_mixed", 20000, 256, 42)
    assert list(found["against"]) == ["glibc"]
    other = found["against"]["glibc"]
    assert other["figures"]["peak_rss_kib"] > 0 and other["statistics"] is None


@machine.needs("program:valgrind", "program:setarch")
def test_instructions_are_counted_on_request():
    found = analysis("--instructions", "--", BUILD / "bin/bench_random_mixed", 20000, 256, 42)
    assert 0 < found["instructions"]["library"] < found["instructions"]["total"]
    assert found["instructions"]["ops"] == 20000


def test_options_are_tried_if_there_is_time():
    found = analysis("--try", "thp=never", "--warm", "1", "--", "true")["options"]
    assert {sample["allocator"] for sample in found["first"]["samples"]} >= {"system", "hakmem", "HAKMEM_THP=never"}


def test_the_page_is_one_file(tmp_path):
    page = tmp_path / "page.html"
    result = hakmem("analyze", "--html", page, "--", *RANDOM_MIXED, timeout=120)
    assert result.status == 0, result.report()
    text = page.read_text()
    assert text.count("<table>") >= 2 and "src=" not in text and "first touches" in text


@pytest.mark.parametrize("words, status, message", [
    (["--", "false"], 1, "exit status 1"),
    (["--against", "no-such", "--", "true"], 2, "no-such"),
    (["--against", "glibc", "--", *RANDOM_MIXED], 2, "bench_random_mixed_hakmem"),
    (["--set", "no_such=1", "--", "true"], 2, "HAKMEM_NO_SUCH"),
    (["./program"], 2, "hakmem analyze -- ./program"),
])
def test_mistakes_are_named(words, status, message):
    result = hakmem("analyze", *words)
    assert result.status == status and not result.stdout and message in result.stderr, result.report()


# ---- What is read, on figures by hand ----

STACKS = """\
7 mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE, -1, 0) = 0x7f00
 > /lib/libc.so.6(__mmap+0x13) [0x1]
 > /opt/lib.so(os_map_at+0x37) [0x2]
 > /opt/lib.so(window_grow+0x15f) [0x3]
 > /opt/lib.so(allocate+0x98) [0x4]
 > /bin/program(main+0x33f) [0x5]
7 madvise(0x1000, 4096, MADV_DONTNEED <unfinished ...>
8 write(1, "(x) = 2", 7) = 7
 > /lib/libc.so.6(write+0x13) [0x1]
 > /bin/program(report(int)+0x1) [0x2]
7 <... madvise resumed>) = 0
 > /lib/libc.so.6(madvise+0x7) [0x1]
 > /opt/lib.so(purge+0x7) [0x2]
 > /opt/lib.so(at_start+0x7) [0x3]
 > /lib/ld-linux-x86-64.so.2(call_init+0x7) [0x4]
8 +++ exited with 0 +++
"""


def test_stacks_are_read():
    first, second, third = parse_stacks(STACKS.splitlines())
    assert (first.name, second.name, third.name) == ("mmap", "write", "madvise")
    assert "MADV_DONTNEED" in third.words
    files = frozenset({"/opt/lib.so"})
    assert part_of(first.frames, files, frozenset()) == Part(ALLOCATOR, "window_grow", "allocate")
    assert part_of(second.frames, files, frozenset()).owner == PROGRAM
    assert part_of(third.frames, files, frozenset()) == Part(START, "purge", "at_start")


@pytest.mark.parametrize("text, told", [
    ("RESULT name=x ops=5 ops_per_s=1234567\n", "1,234,567 operations a second"),
    ("12.5 requests/s\n", "12.5 requests a second"),
    ("9,000 queries per second\n", "9,000 queries a second"),
    ("nothing\n", ""),
])
def test_throughput_is_what_the_program_says(text, told):
    assert throughput_of(text) == told


def seen(**more):
    figures = {"user_s": 1.0, "sys_s": 0.0, "soft_faults": 100, "hard_faults": 0, "peak_rss_kib": 4000}
    return Observed("hakmem", figures=figures, **more)


def test_faults_beyond_the_peak_came_again():
    """Where no tool sees single faults."""
    purge = Part(ALLOCATOR, "purge", "free")
    one = seen(calls={"madvise": Tally(3, 0, 0.0)}, made=Counter({("madvise", purge, True): 3}))
    one.figures["soft_faults"] = 1500
    first, second = rank(one, {})
    assert (first.kind, first.count) == ("first touches", 1000) and (second.kind, second.count) == ("empties", 503)


def test_the_first_calls_stand_for_the_rest():
    made = Counter({("mincore", Part(ALLOCATOR, "free", "free"), False): 9, ("mincore", Part(PROGRAM, "f"), False): 1})
    one = seen(calls={"mincore": Tally(1000, 0, 0.0)}, made=made)
    assert {(part.owner, count) for _, part, _, count in one.callers()} == {(ALLOCATOR, 900), (PROGRAM, 100)}
    assert {(found.kind, found.count) for found in rank(one, {})} >= {("frees", 900), ("program", 100)}


def test_locks_and_settings_are_told_apart():
    made = Counter({("futex", Part(ALLOCATOR, "lock", "malloc"), False): 1000})
    stats = {"counters": {"remote_locked": 500_000}, "classes": {}}
    first, second, *_ = rank(seen(made=made, stats=stats), {"HAKMEM_MF2_ENABLE": "0"})
    assert (first.kind, second.kind) == ("locked frees", "locks") and "HAKMEM_MF2_ENABLE=0" in first.remedy


def test_amounts_are_read():
    assert [number_of(text) for text in ("64K", "64KiB", "2M", "0", "1G")] == [65536, 65536, 2 << 20, 0, 1 << 30]
