"""Protects the costs of many threads or first-class heaps: while they live, and after they ended."""

import re
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
KIB = 1024
# No ticks, whose time depends on the machine, and no reserved address space of a large machine.
COUNTED = {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_ARENA_SIZE": "8G", "LD_BIND_NOW": "1"}


@pytest.fixture(scope="session")
def crowds(compiled):
    return compiled(HERE / "crowds.c")


def instructions(program, kind, count, function):
    """Instructions that the program's function executes, including its callees."""
    result = blackbox.run(
        ["valgrind", "--tool=callgrind", "--max-threads=4000", "--callgrind-out-file=/dev/null",
         f"--toggle-collect={function}", program, kind, count, "at once"],
        preload=blackbox.LIBRARY, env=COUNTED, timeout=100)
    collected = re.search(r"Collected : (\d+)", result.stderr)
    assert result.status == 0 and collected, result.report()
    assert int(collected[1]) > 1_000_000, f"{function} was not counted"
    return int(collected[1])


@pytest.mark.parametrize("function", ["work_after", "work_settled"])
@pytest.mark.parametrize("kind", ["threads", "heaps"])
def test_malloc_costs_the_same_after_a_crowd(crowds, kind, function):
    """Directly after the crowd ended, before any tick, and after all is given back. A walk over what a thousand left
    would cost several times as much. Ticks and checks of the footprint, which come by time, cost a few per cent."""
    assert instructions(crowds, kind, 1000, function) <= 1.5 * instructions(crowds, kind, 1, function)


def memory(program, kind, count, thp):
    """Resident bytes of each member of a crowd, while it lives and after it ended."""
    result = blackbox.run([program, kind, count], preload=blackbox.LIBRARY, timeout=60,
                          env={"HAKMEM_PURGE_DELAY": "10", "HAKMEM_THP": thp})
    assert result.status == 0, result.report()
    live, gone = re.fullmatch(r"live (-?\d+)\ngone (-?\d+)\n", result.stdout).groups()
    return int(live), int(gone)


@pytest.mark.parametrize("thp", ["auto", "never"])
def test_memory_of_threads(crowds, thp):
    """The live figure includes the stacks and a small block each. The rest stays in the allocator and the C library. A
    SuperSlab that is little used keeps its huge page: where the last blocks lie depends on the order of the threads."""
    live, gone = memory(crowds, "threads", 1000, thp)
    assert live <= 28 * KIB and (gone <= KIB or thp == "auto")


@pytest.mark.parametrize("thp", ["auto", "never"])
def test_memory_of_heaps(crowds, thp):
    """A destroyed heap leaves its struct, which the next heap or thread uses."""
    live, gone = memory(crowds, "heaps", 10000, thp)
    assert live <= 12 * KIB and (gone <= 320 or thp == "auto")
