"""Protects docs/misuse.md: a program that misuses memory aborts, with one line that describes the misuse."""

from pathlib import Path

import pytest

import blackbox
from messages import FOREIGN, FREED, NO_BLOCK, SIZE, aborted, misuse_in, pointers

HERE = Path(__file__).resolve().parent
# Blocks of the smallest and the largest small class, spans, and a huge block.
SIZES = [16, 1024, 20 * 1024, 200 * 1024, 5 * 1024 * 1024]
# 7-byte requests, both ends of the spans, and a large huge block.
ALL_SIZES = sorted([*SIZES, 7, 100, 4096, 32768, 32769, 65536, 1024 * 1024, 1024 * 1024 + 1, 64 * 1024 * 1024])
# A slab of at most this block size names its owner.
SMALL = 32768
# The stack, static data, code, a literal, a mapping, the program break; the first page, small and unaligned addresses,
# the end of user space, addresses that are not canonical, the kernel's, the top.
WILD = ["mapped", "stack", "static", "code", "literal", "program-break", "0x10", "0x7", "0x12340", "0x500000123457",
        "0x7ffffffff000", "0x800000000000", "0x00dead0000001000", "0xdead000000001000", "0xffff888000001000",
        "0xfffffffffffffff0", "0xffffffffffffffff"]


@pytest.fixture(scope="module")
def misuse(compiled):
    """misuse(program, *arguments, env={}) runs a program of this folder under HAKMEM."""

    def run(name, *arguments, env=None):
        flags = ["-Wno-free-nonheap-object", "-Wno-use-after-free", "-O0"]
        return blackbox.run([compiled(HERE / f"{name}.c", *flags), *arguments], preload=blackbox.LIBRARY, env=env)

    return run


def expect_abort(result, function, kind, size=None):
    """SIGABRT, and one line: the function, the pointer, what is wrong, and for a small size the class and the owner."""
    said = aborted(result)
    assert (said.function, [said.pointer]) == (function, pointers(result)[:1]), result.report()
    assert said.kind == kind, result.report()
    if size is not None and size <= SMALL:
        size_class, _, _ = said.owner
        assert size <= size_class <= size * 1.25 + 16, result.report()


def expect_to_go_on(result, function, kind, order=list):
    """With aborts off: a line for each misuse, and the calls have no other effect on the program."""
    assert result.status == 0 and result.stdout.endswith("went on\n"), result.report()
    said = misuse_in(result.stderr)
    assert order(line.pointer for line in said) == order(pointers(result)), result.report()
    assert {(line.function, line.kind) for line in said} == {(function, kind)}, result.report()


GO_ON = {"HAKMEM_ABORT_ON_MISUSE": "0"}


# ---- Caught at the call ----


@pytest.mark.parametrize("function", ["free", "realloc", "malloc_usable_size", "free_sized"])
def test_address_of_nobody(misuse, function):
    expect_abort(misuse("wild", function, WILD[0]), function, FOREIGN)
    expect_to_go_on(misuse("wild", function, *WILD, env=GO_ON), function, FOREIGN)


def test_second_free_directly_after_the_first(misuse):
    for size in ALL_SIZES[:-1]:
        expect_abort(misuse("double_direct", size), "free", FREED, size)
    expect_to_go_on(misuse("double_direct", *ALL_SIZES[:-1], env=GO_ON), "free", FREED)
    expect_abort(misuse("double_direct", ALL_SIZES[-1]), "free", FOREIGN)  # the memory is the system's again (N7)


@pytest.mark.parametrize("function,neighbours", [
    ("free", 1), ("free", 0), ("realloc", 1), ("realloc", 0), ("malloc_usable_size", 0),
])
def test_block_gone_from_the_cache(misuse, function, neighbours):
    for size in SIZES:
        kind = FOREIGN if size > 1024 * 1024 else FREED
        if function == "free":
            expect_abort(misuse("gone", function, size, neighbours), function, kind, size if neighbours else None)
        expect_to_go_on(misuse("gone", function, size, neighbours, env=GO_ON), function, kind)


@pytest.mark.parametrize(
    "function,real,claimed",
    [
        ("free_sized", 100, 1000),
        ("free_sized", 16, 17),
        ("free_sized", 20000, 200000),
        ("free_sized", 200000, 20000),
        ("free_sized", 5000000, 9000000),
        ("sdallocx", 1000, 100),
        ("free_aligned_sized", 100, 1000),
        ("alignment", 5000, 65536),
    ],
)
def test_wrong_size(misuse, function, real, claimed):
    name = "free_aligned_sized" if function == "alignment" else function
    expect_abort(misuse("wrong_size", function, real, claimed), name, SIZE, real)
    expect_to_go_on(misuse("wrong_size", function, real, claimed, env=GO_ON), name, SIZE)


def at_the_call(result):
    return "passed" not in result.stdout


@pytest.mark.parametrize("case,kind,sizes", [
    ("unaligned", NO_BLOCK, [24, *ALL_SIZES]),
    # Behind the span's first unit.
    ("interior", NO_BLOCK, [128 * 1024 + 1, 600 * 1024, 1024 * 1024]),
    # No cache takes these, or their stack looks at what it has.
    ("repeated", FREED, [260 * 1024, 512 * 1024, 1024 * 1024 + 1]),
])
def test_caught_before_the_call_returns(misuse, case, kind, sizes):
    for size in sizes:
        result = misuse("late", case, size, "trim")
        expect_abort(result, "free", kind)
        assert at_the_call(result), result.report()


def test_free_inside_a_block_by_a_thread_without_a_bin(misuse):
    for size in (64, 1000, 5000, 24000, 57000, 100000, 512 * 1024):
        result = misuse("late", "elsewhere", size, "exit")
        expect_abort(result, "free", NO_BLOCK, size)
        assert at_the_call(result), result.report()


@pytest.mark.parametrize("function", ["realloc", "malloc_usable_size", "free_sized"])
def test_unaligned_to_every_function(misuse, function):
    for case in ("unaligned", "first-class unaligned"):
        expect_to_go_on(misuse("calls", function, case, 100, env=GO_ON), function, NO_BLOCK)


@pytest.mark.parametrize("case,kind,sizes", [
    ("inside", NO_BLOCK, [600 * 1024, 1024 * 1024, 2 * 1024 * 1024]),
    ("first-class inside", NO_BLOCK, [100, 20 * 1024, 200 * 1024, 2 * 1024 * 1024]),
    ("first-class freed", FREED, [100, 20 * 1024, 200 * 1024, 1024 * 1024]),
])
def test_blocks_that_no_cache_takes(misuse, case, kind, sizes):
    """Large ones, and those of first-class heaps."""
    for size in sizes:
        expect_abort(misuse("calls", "free", case, size), "free", kind)


@pytest.mark.parametrize("function,case,kind", [
    ("malloc_usable_size", "inside", NO_BLOCK),
    *((function, "inside", NO_BLOCK) for function in ("realloc", "hak_expand", "hak_heap_of")),
    *((function, "gone", FREED) for function in ("realloc", "hak_expand", "hak_heap_of")),
])
def test_functions_that_look_at_the_slab(misuse, function, case, kind):
    for size in (100, 20 * 1024):
        expect_abort(misuse("calls", function, case, size), function, kind)


# ---- Caught at the latest when malloc would hand out the address ----

LARGE = (1025, 1024 * 1024)
COUNTED = {"HAKMEM_HEAP_PROFILE": "/dev/null", "HAKMEM_HEAP_PROFILE_RATE": "64M"}


@pytest.mark.parametrize("env", [{}, COUNTED], ids=["plain", "profiled"])
@pytest.mark.parametrize("function", ["malloc", "calloc", "aligned_alloc", "posix_memalign", "realloc", "mallocx"])
def test_no_blocks_overlap_after_a_free_inside_a_large_block(misuse, function, env):
    # While calls are counted, another block may be handed out first.
    expect_to_go_on(misuse("inside", function, *LARGE, env=GO_ON | env), "free", NO_BLOCK, sorted)
    result = misuse("inside", function, *LARGE, env=env)
    assert aborted(result).kind == NO_BLOCK and aborted(result).pointer in pointers(result), result.report()


@pytest.mark.parametrize("function", ["malloc", "aligned_alloc"])
def test_no_blocks_overlap_after_a_free_inside_any_block_and_a_flush(misuse, function):
    expect_to_go_on(misuse("inside", function, 17, LARGE[1], "trim", env=GO_ON), "free", NO_BLOCK)


# ---- Caught at the latest when the block leaves the cache ----


@pytest.mark.parametrize("end", ["trim", "exit", "work"])
@pytest.mark.parametrize("case,kind", [("interior", NO_BLOCK), ("repeated", FREED)])
def test_caught_when_the_block_leaves_the_cache(misuse, case, kind, end):
    for size in (64, 20 * 1024, 200 * 1024, 5 * 1024 * 1024):
        expect_abort(misuse("late", case, size, end), "free", kind)


@pytest.mark.parametrize("case,kind", [("interior", NO_BLOCK), ("repeated", FREED)])
def test_late_misuse_told_to_go_on(misuse, case, kind):
    for size in (64, 200 * 1024, 5 * 1024 * 1024):
        expect_to_go_on(misuse("late", case, size, "trim", env=GO_ON), "free", kind)


def test_freed_by_two_threads(misuse):
    for size in SIZES:
        expect_abort(misuse("other_thread", size), "free", FREED)


@pytest.mark.parametrize("case,kind", [("gone", FREED), ("inside", NO_BLOCK)])
def test_sized_free_of_what_is_no_live_block(misuse, case, kind):
    expect_abort(misuse("calls", "free_sized", case, 100), "free", kind)


# ---- Not caught ----


@pytest.mark.parametrize("kind", ["interior", "repeated"])
def test_the_end_of_the_process_finds_nothing(misuse, kind):
    result = misuse("late", kind, 64, "at once")
    assert result.status == 0 and result.stderr == "" and not at_the_call(result), result.report()


@pytest.mark.parametrize("function,case", [
    ("malloc_usable_size", "cached"), ("malloc_usable_size", "gone"), ("free after reuse", "cached"),
])
@pytest.mark.parametrize("size", [100, 20 * 1024])
def test_what_looks_alive(misuse, function, case, size):
    result = misuse("calls", function, case, size)
    assert result.status == 0 and "hakmem" not in result.stderr, result.report()


# ---- Never an effect ----


def test_write_after_free_one_size(misuse):
    for size in (16, 48, 512, 1024, 5000, 32768, 60000, 200000, 1000000, 3000000):
        result = misuse("write_after_free_single", size)
        assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()


@pytest.mark.parametrize("seed,purge_thread", [(1, "never"), (2, "always")])
def test_write_after_free_threads(misuse, seed, purge_thread):
    """Not with a purge thread that comes and goes: the C library keeps a thread's data in an ordinary block, which may
    lie where the program writes after its free."""
    result = misuse("write_after_free", seed, env={"HAKMEM_PURGE_THREAD": purge_thread})
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()
