"""Protects docs/why.md: it is what `hakmem bench why` makes of the results."""

import pytest
import tool  # noqa: F401  (puts the package on the path)

from hakmem.bench import rows, why
from hakmem.bench.why import SECTIONS, Section, ratios, today


def test_the_page_is_current():
    assert why.PAGE.read_text() == why.page(), "make it again: ./hakmem bench why --write"


def test_each_row_exists():
    names = {row.name for row in rows.load()}
    assert {row for section in SECTIONS for figure, row in section.rows if figure != "calls"} <= names


LINES = [("2026-01-01", {"row": "a", "allocator": "glibc", "time_ratio": "0.5", "faults_ratio": "3"}),
         ("2026-01-02", {"row": "a", "allocator": "glibc", "time_ratio": "0.8", "faults_ratio": ""}),
         ("2026-01-02", {"row": "a", "allocator": "mimalloc3", "time_ratio": "2"})]


@pytest.mark.parametrize("figure, row, words", [
    ("speed", "a", ["1.25 of glibc's", "0.50 of mimalloc 3's", "2026-01-02"]),  # the newest; faster is above 1
    ("faults", "a", ["3.00 of glibc's", "2026-01-01"]),
    ("speed", "b", ["none measured"]),
    ("calls", "no such line", ["not counted"]),
])
def test_a_cell_has_the_newest_ratios(figure, row, words):
    cell = today(Section("", "", "", "", ((figure, row),)), ratios(LINES))
    assert all(word in cell for word in words) and ("2026-01-01" in cell) == ("2026-01-01" in words)
