"""Protects HAKMEM's deterministic costs: they equal the golden files (see check.py).

test_golden_instructions.py has the instructions of the programs, which take longest."""

import check
import pytest


def verify(name):
    """The check's figures, each of them as in its golden file, if that is of the same compiler and C library."""
    try:
        apart = check.verify(name, check.default_subject())
    except check.CheckError as error:
        pytest.fail(str(error), pytrace=False)
    if apart:
        pytest.skip(apart)


@pytest.mark.parametrize("name", sorted(set(check.CHECKS) - {"instructions"}))
def test_cost(name):
    verify(name)
