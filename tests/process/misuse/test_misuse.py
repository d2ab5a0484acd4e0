"""Protects docs/misuse.md: a program that misuses memory aborts, with one line that describes the misuse."""

import re
import signal
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
SIZES = [16, 1024, 20 * 1024, 200 * 1024, 5 * 1024 * 1024]
# 7-byte requests, the largest small class, both ends of the spans, and large huge blocks.
ALL_SIZES = sorted([*SIZES, 7, 100, 4096, 32768, 32769, 65536, 1024 * 1024, 1024 * 1024 + 1, 64 * 1024 * 1024])

WILD = {
    "stack": "stack",
    "static": "static",
    "code": "code",
    "literal": "literal",
    "mapped": "mapped",
    "program break": "program-break",
    "first page": "0x10",
    "odd and small": "0x7",
    "small": "0x12340",
    "unaligned": "0x500000123457",
    "end of user space": "0x7ffffffff000",
    "non-canonical low": "0x800000000000",
    "non-canonical": "0x00dead0000001000",
    "non-canonical high": "0xdead000000001000",
    "kernel": "0xffff888000001000",
    "top": "0xfffffffffffffff0",
    "all ones": "0xffffffffffffffff",
}

FOREIGN = r"not allocated by HAKMEM"
FREED = r"freed already|not a (live )?block"
NO_BLOCK = r"not the start of a block|inside a block|not a block"
WRONG_SIZE = r"not of that size"
OWNED = r"size class \d+, owner heap \d+ of thread \d+"


@pytest.fixture(scope="module")
def misuse(compiled):
    """misuse(program, *arguments, env={}) runs a program of this folder under HAKMEM."""

    def run(name, *arguments, env=None):
        flags = ["-Wno-free-nonheap-object", "-Wno-use-after-free", "-O0"]
        return blackbox.run([compiled(HERE / f"{name}.c", *flags), *arguments], preload=blackbox.LIBRARY, env=env)

    return run


def expect_abort(result, function, what, *, owned=False):
    """SIGABRT, and one line on stderr: the function, the pointer, what is wrong, the size class and the owner."""
    pointer = result.stdout.splitlines()[0]
    assert result.status == -signal.SIGABRT, result.report()
    assert re.fullmatch(rf"hakmem: {function}\({re.escape(pointer)}\): .+\n", result.stderr), result.report()
    assert re.search(what, result.stderr), result.report()
    assert re.search("size class", result.stderr) and re.search("owner", result.stderr), result.report()
    if owned:
        assert re.search(OWNED, result.stderr), result.report()


def expect_to_go_on(result, function, what):
    """With aborts off: the same line, and the call has no other effect on the program."""
    pointer = result.stdout.splitlines()[0]
    assert result.status == 0, result.report()
    lines = [line for line in result.stderr.splitlines() if not line.startswith("usable ")]
    assert len(lines) >= 1, result.report()
    assert re.match(rf"hakmem: {function}\({re.escape(pointer)}\): ", lines[0]), result.report()
    assert re.search(what, lines[0]), result.report()
    assert result.stdout.splitlines()[-1] == "went on"


GO_ON = {"HAKMEM_ABORT_ON_MISUSE": "0"}


# ---- Caught at the call ----


@pytest.mark.parametrize("where", WILD)
@pytest.mark.parametrize("function", ["free", "realloc", "malloc_usable_size", "free_sized"])
def test_address_of_nobody(misuse, function, where):
    expect_abort(misuse("wild", function, WILD[where]), function, FOREIGN)
    expect_to_go_on(misuse("wild", function, WILD[where], env=GO_ON), function, FOREIGN)


@pytest.mark.parametrize("size", ALL_SIZES)
def test_second_free_directly_after_the_first(misuse, size):
    expect_abort(misuse("double_direct", size), "free", FREED, owned=size <= 32768)
    expect_to_go_on(misuse("double_direct", size, env=GO_ON), "free", FREED)


@pytest.mark.parametrize("neighbours", [1, 0], ids=["neighbours live", "all gone"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", ["free", "realloc", "malloc_usable_size"])
def test_block_gone_from_the_cache(misuse, function, size, neighbours):
    freed = "freed already; size class" if neighbours else "freed already; size class gone with its slab"
    what = FOREIGN if size > 1024 * 1024 else freed
    expect_abort(misuse("gone", function, size, neighbours), function, what, owned=neighbours and size <= 32768)
    expect_to_go_on(misuse("gone", function, size, neighbours, env=GO_ON), function, what)


@pytest.mark.parametrize(
    "function,real,claimed",
    [
        ("free_sized", 100, 1000),
        ("free_sized", 1000, 100),
        ("free_sized", 16, 17),
        ("free_sized", 20000, 200000),
        ("free_sized", 200000, 20000),
        ("free_sized", 100, 5000000),
        ("free_sized", 5000000, 9000000),
        ("sdallocx", 100, 1000),
        ("sdallocx", 200000, 16),
        ("free_aligned_sized", 100, 1000),
        ("alignment", 100, 4096),
        ("alignment", 5000, 65536),
    ],
)
def test_wrong_size(misuse, function, real, claimed):
    name = "free_aligned_sized" if function == "alignment" else function
    expect_abort(misuse("wrong_size", function, real, claimed), name, WRONG_SIZE, owned=real <= 32768)
    expect_to_go_on(misuse("wrong_size", function, real, claimed, env=GO_ON), name, WRONG_SIZE)


def at_the_call(result):
    return "passed" not in result.stdout


@pytest.mark.parametrize("size", [24, *ALL_SIZES])
def test_unaligned(misuse, size):
    result = misuse("late", "unaligned", size, "trim")
    expect_abort(result, "free", NO_BLOCK)
    assert at_the_call(result), result.report()
    expect_to_go_on(misuse("late", "unaligned", size, "trim", env=GO_ON), "free", NO_BLOCK)


@pytest.mark.parametrize("function", ["free", "realloc", "malloc_usable_size", "free_sized"])
@pytest.mark.parametrize("case", ["unaligned", "first-class unaligned"])
def test_unaligned_to_every_function(misuse, function, case):
    expect_abort(misuse("calls", function, case, 100), function, NO_BLOCK)
    expect_to_go_on(misuse("calls", function, case, 100, env=GO_ON), function, NO_BLOCK)


@pytest.mark.parametrize("size", [128 * 1024 + 1, 300 * 1024, 512 * 1024, 600 * 1024, 1024 * 1024])
def test_inside_a_span_behind_its_first_unit(misuse, size):
    result = misuse("late", "interior", size, "trim")
    expect_abort(result, "free", NO_BLOCK)
    assert at_the_call(result), result.report()


@pytest.mark.parametrize("size", [260 * 1024, 300 * 1024, 512 * 1024, 1024 * 1024 + 1])
def test_repeated_with_another_between(misuse, size):
    result = misuse("late", "repeated", size, "trim")
    expect_abort(result, "free", FREED)
    assert at_the_call(result), result.report()


@pytest.mark.parametrize("case,what", [("inside", NO_BLOCK), ("first-class inside", NO_BLOCK),
                                       ("first-class freed", FREED)])
@pytest.mark.parametrize("size", [600 * 1024, 1024 * 1024, 2 * 1024 * 1024])
def test_blocks_that_no_cache_takes(misuse, case, what, size):
    expect_abort(misuse("calls", "free", case, size), "free", what)


@pytest.mark.parametrize("case,what", [("first-class inside", NO_BLOCK), ("first-class freed", FREED)])
@pytest.mark.parametrize("size", [100, 1024, 20 * 1024, 200 * 1024])
def test_blocks_of_first_class_heaps(misuse, case, what, size):
    expect_abort(misuse("calls", "free", case, size), "free", what)


@pytest.mark.parametrize("function", ["realloc", "malloc_usable_size", "hak_expand", "hak_heap_of"])
@pytest.mark.parametrize("case,what", [("inside", NO_BLOCK), ("gone", FREED)])
@pytest.mark.parametrize("size", [100, 1024, 20 * 1024])
def test_functions_that_look_at_the_slab(misuse, function, case, what, size):
    expect_abort(misuse("calls", function, case, size), function, what)


# ---- Caught at the latest when the block leaves the cache ----


@pytest.mark.parametrize("end", ["trim", "exit", "work"])
@pytest.mark.parametrize("size", [64, 1024, 20 * 1024, 200 * 1024, 5 * 1024 * 1024])
@pytest.mark.parametrize("kind,what", [("interior", NO_BLOCK), ("repeated", FREED)])
def test_caught_when_the_block_leaves_the_cache(misuse, kind, what, size, end):
    expect_abort(misuse("late", kind, size, end), "free", what)


@pytest.mark.parametrize("kind", ["interior", "repeated"])
@pytest.mark.parametrize("size", [64, 200 * 1024, 5 * 1024 * 1024])
def test_late_misuse_told_to_go_on(misuse, kind, size):
    result = misuse("late", kind, size, "trim", env=GO_ON)
    assert result.status == 0, result.report()
    assert result.stdout.splitlines()[-1] == "went on"
    assert re.match(rf"hakmem: free\({result.stdout.splitlines()[0]}\): ", result.stderr), result.report()


@pytest.mark.parametrize("size", SIZES)
def test_freed_by_two_threads(misuse, size):
    expect_abort(misuse("other_thread", size), "free", FREED)


@pytest.mark.parametrize("case,what", [("gone", FREED), ("inside", NO_BLOCK)])
@pytest.mark.parametrize("function", ["free", "free_sized"])
def test_sized_free_of_what_is_no_live_block(misuse, function, case, what):
    expect_abort(misuse("calls", function, case, 100), "free", what)


# ---- Not caught ----


@pytest.mark.parametrize("kind", ["interior", "repeated"])
def test_the_end_of_the_process_finds_nothing(misuse, kind):
    result = misuse("late", kind, 64, "at once")
    assert result.status == 0 and result.stderr == "" and not at_the_call(result), result.report()


@pytest.mark.parametrize("function", ["malloc_usable_size", "free after reuse"])
@pytest.mark.parametrize("size", [100, 20 * 1024])
def test_what_looks_alive(misuse, function, size):
    result = misuse("calls", function, "cached", size)
    assert result.status == 0 and "hakmem" not in result.stderr, result.report()


# ---- Never an effect ----


@pytest.mark.parametrize("size", [16, 48, 100, 512, 1024, 5000, 20000, 32768, 60000, 200000, 1000000, 3000000])
def test_write_after_free_one_size(misuse, size):
    result = misuse("write_after_free_single", size)
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()


@pytest.mark.parametrize("purge_thread", ["never", "always"])
@pytest.mark.parametrize("seed", [1, 2])
def test_write_after_free_threads(misuse, seed, purge_thread):
    """Not with a purge thread that comes and goes: the C library keeps a thread's data in an ordinary block, which may
    lie where the program writes after its free."""
    result = misuse("write_after_free", seed, env={"HAKMEM_PURGE_THREAD": purge_thread})
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()
