"""Protects what each function counts as, by calls of known number, and the figures by independent measures."""

from pathlib import Path

import pytest

import blackbox
import profiling

FOLDER = Path(__file__).resolve().parent
COUNT = 3000
BLOCKS = ("malloc_hit", "malloc_miss")
FREES = ("free_hit", "free_miss")


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(FOLDER / "calls.cpp", blackbox.LIBRARY, f"-Wl,-rpath,{blackbox.LIBRARY_FOLDER}")


def between(program, name, count, env=None):
    """The difference of the two reports, the second report, and the lines that the program printed."""
    result = blackbox.run([program, name, count], env={"HAKMEM_TINY_PROFILE": "json", **(env or {})})
    assert result.status == 0, result.report()
    before, after = profiling.documents(result.stderr)
    return profiling.change(before, after), after, result.stdout.splitlines()


def total(calls, kinds):
    return sum(calls.pop(kind, 0) for kind in kinds)


@pytest.mark.parametrize("name", [
    "calloc", "__libc_calloc", "hak_calloc", "aligned_alloc", "hak_aligned_alloc", "memalign", "__libc_memalign",
    "posix_memalign", "hak_posix_memalign", "new_aligned", "new_aligned_nothrow", "realloc_null"])
def test_blocks_hit_and_miss_as_mallocs_do(program, name):
    change, _, _ = between(program, name, COUNT)
    calls = change.calls
    assert calls["malloc_miss"] == change.kinds["refill"] > 10
    assert total(calls, BLOCKS) == COUNT
    assert total(calls, FREES) == COUNT
    assert calls == {}


@pytest.mark.parametrize("name", ["calloc_medium", "valloc", "pvalloc"])
def test_what_the_cache_has_is_a_hit(program, name):
    """calloc of more than 1 KiB also hits, although it enters by the slow path to ask whether the block is zero."""
    calls = between(program, name, COUNT)[0].calls
    assert calls["malloc_hit"] >= COUNT - 2
    assert total(calls, BLOCKS) == total(calls, FREES) == COUNT
    assert calls == {}


@pytest.mark.parametrize("name, kinds", [
    ("calloc_huge", {"malloc_huge": 40, "free_huge": 40}),
    ("calloc_overflow", {"malloc_huge": 40}),
    ("aligned_huge", {"malloc_huge": 40, "free_huge": 40}),
    ("aligned_too_large", {"malloc_huge": 40}),
    ("aligned_refused", {}),
    ("free_sized_null", {"free_null": 40}),
    ("heap", {"heap_malloc": 200, "realloc_move": 40, "realloc_stay": 40, "free_miss": 40}),
    ("heap_too_large", {"heap_malloc": 40}),
    ("expand", {"malloc_hit": 1, "free_hit": 1, "realloc_stay": 80}),
])
def test_blocks_beyond_the_cache(program, name, kinds):
    assert between(program, name, 40)[0].calls == kinds


def test_spans_at_a_chosen_place_are_large(program):
    calls = between(program, "aligned_span", 40)[0].calls
    assert calls.pop("malloc_large") == 40
    assert total(calls, ("free_hit", "free_large")) == 40
    assert calls == {}


@pytest.mark.parametrize("name, kind", [
    ("realloc_stay", "realloc_stay"), ("realloc_fails", "realloc_stay"), ("realloc_move", "realloc_move"),
    ("__libc_realloc", "realloc_move"), ("hak_realloc", "realloc_move"), ("reallocarray", "realloc_move"),
    ("hak_reallocarray", "realloc_move")])
def test_realloc(program, name, kind):
    """The malloc and free inside realloc do not count."""
    calls = between(program, name, COUNT)[0].calls
    assert calls.pop(kind) == COUNT
    assert total(calls, BLOCKS) == total(calls, FREES) == 1
    assert calls == {}


def test_realloc_of_huge_blocks(program):
    calls = between(program, "realloc_huge", 100)[0].calls
    assert total(calls, ("realloc_stay", "realloc_move")) == 100
    assert calls == {"malloc_huge": 1, "free_huge": 1}


@pytest.mark.parametrize("name", [
    "realloc_zero", "free_sized", "hak_free_sized", "free_aligned_sized", "hak_free_aligned_sized", "sdallocx",
    "sized_delete"])
def test_frees_with_a_size(program, name):
    calls = between(program, name, COUNT)[0].calls
    assert calls["free_hit"] > COUNT - 3
    assert total(calls, BLOCKS) == total(calls, FREES) == COUNT
    assert calls == {}


def test_a_sized_free_of_a_huge_block(program):
    assert between(program, "free_sized_huge", 40)[0].calls == {"malloc_huge": 40, "free_huge": 40}


def test_misuse_is_no_hit(program):
    change, _, _ = between(program, "free_sized_wrong", 40, {"HAKMEM_ABORT_ON_MISUSE": "0"})
    assert change.calls == {"free_miss": 40}


def test_batches_count_a_call_each(program):
    change, _, _ = between(program, "batch", 50)
    assert change.calls == {"malloc_batch": 50, "free_batch": 50}
    assert change.kinds["flush"] > 0


def test_a_random_mixture_against_a_shadow_count(program):
    change, profile, said = between(program, "mixed", 100000)
    mallocs, frees, nulls, reallocs = map(int, said[0].split())
    assert min(mallocs, frees, nulls, reallocs) > 1000
    calls = change.calls
    assert calls["free_null"] == nulls
    assert change.mallocs == mallocs
    assert change.frees == frees + nulls
    assert calls["realloc_stay"] + calls["realloc_move"] == reallocs
    assert all(calls[kind] > 0 for kind in profiling.MALLOC + profiling.FREE)
    assert profile["coverage"]["malloc"]["calls"] - mallocs < 100  # before the first report
    assert profile["coverage"]["malloc"]["hits"] == profile["kinds"]["malloc_hit"]["count"]


def test_a_known_delay(program):
    """The handler of a failing allocation sleeps for 100 ms, which the call's figure must include."""
    change, profile, said = between(program, "delayed", 1)
    assert change.kinds["malloc_huge"] == 1
    ticks = profile["kinds"]["malloc_huge"]["max"]
    assert 0.1 * profile["frequency_hz"] <= ticks <= int(said[0]), "no longer than what the program measures around it"
    assert profile["kinds"]["malloc_huge"]["sum"] >= ticks


def measure(program, name, count):
    """The ticks that the program measured for its loop, the ticks in the figures, and the profile."""
    change, profile, said = between(program, name, count)
    assert change.mallocs == change.frees == count
    assert min(change.kinds["malloc_hit"], change.kinds["free_hit"]) > count - 100
    return int(said[0]), sum(profile["kinds"][kind]["sum"] for kind in ("malloc_hit", "free_hit")), profile


def test_the_figures_of_hits_against_the_time_of_a_loop(program):
    """Each call's time lies within the loop's, together with what was taken off for the clock."""
    count = 200000
    loop, figures, profile = measure(program, "measured", count)
    assert 0 < figures and figures + 2 * count * profile["overhead"]["subtracted"] <= loop * 1.01
    loop, figures, _ = measure(program, "measured_calloc", 1000)
    assert figures <= loop * 1.01


@pytest.mark.parametrize("name", ["calloc", "aligned_alloc", "calloc_medium", "free_sized", "aligned_span"])
def test_misses_are_those_that_the_statistics_count(program, name):
    change, _, said = between(program, name, 50000 if name != "aligned_span" else 50)
    misses, overflows = map(int, said[-1].split())
    chosen = 50 if name == "aligned_span" else 0  # the cache does not serve spans at a chosen place
    assert change.kinds["malloc_miss"] + change.kinds["malloc_large"] == misses + chosen
    assert change.kinds["free_miss"] + change.kinds["free_large"] == overflows
