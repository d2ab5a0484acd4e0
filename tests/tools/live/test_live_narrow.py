"""Protects the tables of stats and explain on narrow terminals: what does not fit is left out and named.

A file gets every column."""

import pytest
from terminal import on_terminal


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [["stats"], ["stats", "--superslabs"], ["explain", "--sites"]], ids=" ".join)
def test_no_line_is_too_wide(known, tmp_path, words, columns):
    program = known(env={"HAKMEM_HEAP_PROFILE": tmp_path / "heap.gz", "HAKMEM_HEAP_PROFILE_RATE": "1"})
    program.ask("take", 3072, 5000)
    program.ask("map", 3 << 20)
    lines = on_terminal(columns, *words, program.pid)
    assert len(lines) > 30 and max(map(len, lines)) <= columns, "\n".join(lines)
    assert columns > 60 or any(line.startswith("A wider terminal also shows: ") for line in lines), "\n".join(lines)


def test_what_is_left_out_is_named(known, hakmem):
    program = known()
    program.ask("take", 3072, 5000)
    lines = on_terminal(60, "stats", program.pid)
    place = lines.index("Size classes")
    assert lines[place + 1].split() == ["block", "slabs", "live", "live", "bytes", "cached", "bytes", "free", "bytes"]
    end = lines.index("", place)
    assert lines[end - 1] == "A wider terminal also shows: cached; free"
    piped = hakmem("stats", program.pid).splitlines()
    assert "A wider terminal" not in "\n".join(piped)
    assert piped[piped.index("Size classes") + 1].split() == [
        "block", "slabs", "live", "cached", "free", "live", "bytes", "cached", "bytes", "free", "bytes"]
    # The rows of the terminal are those of the file without these columns.
    row = next(line.split() for line in piped[piped.index("Size classes"):] if line.split()[:1] == ["3,072"])
    assert [*row[:3], *row[5:]] in [line.split() for line in lines[place:end]]
