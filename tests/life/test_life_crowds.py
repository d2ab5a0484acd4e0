"""What a crowd of threads, or of first-class heaps, costs while it lives, and what it leaves behind."""

import re
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
KIB = 1024
# A debug build, in which a lock costs several times as much.
CHECKS_LOCKS = b"broken invariant" in Path(blackbox.LIBRARY).read_bytes()
# Without ticks, whose time is the machine's, and without the reserved address space of a large machine.
COUNTED = {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_ARENA_SIZE": "8G", "LD_BIND_NOW": "1"}


@pytest.fixture(scope="session")
def crowds(compiled):
    return compiled(HERE / "crowds.c")


def instructions(program, kind, count, function):
    """What one of the program's functions executes, with what it calls."""
    result = blackbox.run(
        ["valgrind", "--tool=callgrind", "--max-threads=4000", "--callgrind-out-file=/dev/null",
         f"--toggle-collect={function}", program, kind, count],
        preload=blackbox.LIBRARY, env=COUNTED, timeout=100)
    collected = re.search(r"Collected : (\d+)", result.stderr)
    assert result.status == 0 and collected, result.report()
    assert int(collected[1]) > 1_000_000, f"{function} was not counted"
    return int(collected[1])


@pytest.mark.parametrize("function", ["work_after", "work_settled"])
@pytest.mark.parametrize("kind", ["threads", "heaps"])
def test_malloc_costs_the_same_after_a_crowd(crowds, kind, function):
    """Both directly after the crowd has gone, before any tick has seen to what it left, and when all is given back."""
    one, crowd = (instructions(crowds, kind, count, function) for count in (1, 1000))
    assert crowd <= (1.06 if CHECKS_LOCKS else 1.03) * one


def memory(program, kind, count, thp):
    """Resident bytes for each of a crowd, while it lives and when it has gone."""
    result = blackbox.run([program, kind, count], preload=blackbox.LIBRARY, timeout=60,
                          env={"HAKMEM_PURGE_DELAY": "10", "HAKMEM_THP": thp})
    assert result.status == 0, result.report()
    live, gone = re.fullmatch(r"live (-?\d+)\ngone (-?\d+)\n", result.stdout).groups()
    return int(live), int(gone)


@pytest.mark.parametrize("thp", ["auto", "never"])
def test_memory_of_threads(crowds, thp):
    """With their stacks, and a small block each. What they leave is in the allocator and the C library."""
    live, gone = memory(crowds, "threads", 1000, thp)
    assert live <= 28 * KIB and gone <= KIB


@pytest.mark.parametrize("thp", ["auto", "never"])
def test_memory_of_heaps(crowds, thp):
    """A heap that was destroyed leaves its struct, for the next heap or thread."""
    live, gone = memory(crowds, "heaps", 10000, thp)
    assert live <= 12 * KIB and gone <= 320
