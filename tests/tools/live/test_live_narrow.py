"""Protects the tables of all commands on narrow terminals: columns that do not fit are left out and named.

The figure that sorts the sites stays. A file gets all columns."""

import sys

import blackbox
import pytest
from inprocess import hakmem
from terminal import on_terminal

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/heap"))

from making import TYPES_WITH_OWN, Making, named  # noqa: E402

NAMES = ("cache::Table::insert_or_assign_all", "server::Connection::accept_and_read", "json::Value::append")


@pytest.fixture
def profile(tmp_path):
    """Sites with long names whose figures are wide, with lifetimes, sizes and frees by any thread."""
    making = Making(TYPES_WITH_OWN)
    for number, name in enumerate(NAMES, 1):
        at = named(f"{name}:1234", "main:30", file="/home/builder/project/source/of/the/server.cc")
        making.stack(at, 12_345_678, 98_765_432 * number, 1_234_567, 87_654_321 * number, 0, 0, 0, size=128 << number)
        for start in (0, 1, 16, 256, 4096, 65536, 1 << 20):
            making.stack(at, 0, 0, 0, 0, 10_000 + start, 50_000 * start, 0, lived_from=start)
        making.stack(at, 0, 0, 0, 0, 0, 0, 9_000, calls_from=0)
    return making.write(tmp_path / "wide.pb.gz")


def test_no_line_is_too_wide(known, profile, tmp_path):
    program = known(env={"HAKMEM_HEAP_PROFILE": tmp_path / "heap.gz", "HAKMEM_HEAP_PROFILE_RATE": "1"})
    program.ask("take", 3072, 5000)
    program.ask("map", 3 << 20)
    for words in (["stats", program.pid], ["stats", "--superslabs", program.pid], ["explain", "--sites", program.pid],
                  ["heap", profile], ["heap", "--sort", "cum", profile], ["heap", "--lifetimes", profile],
                  ["heap", "--temporary", profile], ["heap", "--sizes", profile],
                  ["heap", "--timeline", profile, profile]):
        for columns in (60, 80):
            lines = on_terminal(columns, *words)
            assert max(map(len, lines)) <= columns, "\n".join(lines)
        assert len(lines) > 5


def test_what_is_left_out(known, profile):
    """The rows of the terminal are those of the file without some columns, which a line below the table names."""
    for by, other in (("flat", "cum"), ("cum", "flat")):
        lines = on_terminal(60, "heap", "--sort", by, profile)
        head = next(number for number, line in enumerate(lines) if line.split()[-1:] == ["where"])
        assert lines[head].split() == [by, "share", "site", "where"]
        assert {other, "objects"} <= set(" ".join(lines[head + 4:]).replace(";", " ").split())
        assert lines[head + 1].split()[4] == (NAMES[2] if by == "flat" else "main")
    program = known()
    program.ask("take", 3072, 5000)

    def row(lines):
        return next(line.split() for line in lines if line.split()[:1] == ["3,072"])
    whole = row(hakmem("stats", program.pid).stdout.splitlines())
    assert row(on_terminal(60, "stats", program.pid)) == [whole[0], whole[2], *whole[6:12]]
