"""Protects the peak of programs that change their block sizes. It depends on when threads and purges have a processor."""

import pytest

import blackbox
from test_life_footprint import HERE, LIVE, MB, MIB, PROGRAMS, peak


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_of_sizes(compiled, name):
    """An allocator that keeps the memory of the old sizes holds twice the live peak. Here it is at most 1.27 times. For
    each thread its stack and the slabs that its cache pins come on top."""
    arguments, live = PROGRAMS[name]
    own = 2 * MIB * arguments[0]
    held = peak(blackbox.run_with_proof([compiled(HERE / "size_change.c"), LIVE // MB, *arguments]))
    assert LIVE * 3 // 4 < held <= live * 1.75 + own, f"{held / MB:.1f} MB"
