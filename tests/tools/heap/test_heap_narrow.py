"""Protects the tables of `hakmem heap` on narrow terminals: what does not fit is left out and named.

The figure that sorts the sites stays. A file gets every column."""

import pytest
from making import TYPES_WITH_OWN, Making, named, run
from terminal import on_terminal

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


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("options", [[], ["--sort", "cum"], ["--lifetimes"], ["--temporary"], ["--sizes"],
                                     ["--timeline"]], ids=" ".join)
def test_no_line_is_too_wide(profile, options, columns):
    lines = on_terminal(columns, "heap", *options, *([profile] if "--timeline" in options else []), profile)
    assert max(map(len, lines)) <= columns, "\n".join(lines)
    assert columns > 60 or any(line.startswith("A wider terminal also shows: ") for line in lines), "\n".join(lines)
    assert "A wider terminal" not in run(*options, profile).stdout


@pytest.mark.parametrize("by, other", [("flat", "cum"), ("cum", "flat")])
def test_the_figure_that_sorts_stays(profile, by, other):
    lines = on_terminal(60, "heap", "--sort", by, profile)
    head = next(number for number, line in enumerate(lines) if line.split()[-1:] == ["where"])
    assert lines[head].split() == [by, "share", "site", "where"]
    left_out = "".join(lines[head:]).partition("A wider terminal also shows: ")[2]
    assert left_out == "; ".join([other, "share", "objects", "mean life"])
    assert lines[head + 1].split()[4] == (NAMES[2] if by == "flat" else "main")


def test_lifetimes_leave_out_what_holds_least(profile):
    lines = on_terminal(60, "heap", "--lifetimes", profile)
    head = next(line for line in lines if line.endswith("site"))
    assert "17.5 min" in head and "65.5 s" in head and "< 1 ms" not in head
