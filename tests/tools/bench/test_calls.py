"""Protects the count of memory system calls by strace."""

from pathlib import Path

import tool  # noqa: F401  (puts the package on the path)

from hakmem.bench import allocators, calls
from hakmem.bench.rows import Row
from hakmem.bench.runner import Conditions

SOURCE = Path(__file__).with_name("map_times.c")
TABLE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.54    0.000112           2        41           mmap
 38.46    0.000070          11         6         2 munmap
  0.00    0.000000           0         3         1 nosuch
------ ----------- ----------- --------- --------- ----------------
100.00    0.000182           3        50         2 total
"""


def count(program, *counts, library=None, **more):
    row = Row("r", "program", 1, "", (str(program), *map(str, counts)), "wall", **more)
    chosen = allocators.from_library("x", library) if library else allocators.glibc()
    return calls.count_calls(row, chosen, Conditions(files=Path("/")))


def test_the_table_is_read():
    assert calls.parse_table(TABLE) == {"mmap": calls.Tally(41, 0, 0.000112), "munmap": calls.Tally(6, 2, 0.00007),
                                        "nosuch": calls.Tally(3, 1, 0.0)}
    assert calls.parse_table("") == {}


def test_counts_are_those_of_the_program(compiled):
    """Beyond the calls of any start, exactly the requested number, also in children."""
    program = compiled(SOURCE)
    none, some = count(program, 0)["memory"], count(program, 37, 5, 5)
    made = {call: some["memory"].get(call, 0) - none.get(call, 0) for call in some["memory"]}
    made = {call: number for call, number in made.items() if call != "brk"}
    assert made == {"mmap": 47, "munmap": 47, "madvise": 94, "mprotect": 47}
    assert some["memory_total"] == sum(some["memory"].values())


def test_the_library_is_in_the_program_alone(compiled, library):
    """HAKMEM maps more at its start than glibc does, but not for strace itself."""
    program = compiled(SOURCE)
    ours, plain = count(program, 5, library=library), count(program, 5)
    assert plain["memory_total"] < ours["memory_total"] < plain["memory_total"] + 60


def test_a_program_that_fails_is_said(compiled):
    entry = count("false")
    assert entry["memory_total"] is None
    assert "exit status 1" in entry["detail"]
    assert "0.4 s" in count("sleep", "60", time_limit_s=0.1)["detail"]
