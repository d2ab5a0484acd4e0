"""Protects HAKMEM's deterministic costs: they equal the golden files (see check.py).

test_golden_instructions.py has the instructions of the programs, which take longest."""

import check
import pytest


def verify(name):
    """The check's figures, each of them as in its golden file."""
    failure = None
    try:
        check.verify(name, check.default_subject())
    except check.CheckError as error:
        failure = str(error)
    if failure:
        pytest.fail(failure, pytrace=False)


@pytest.mark.parametrize("name", sorted(set(check.CHECKS) - {"instructions"}))
def test_cost(name):
    verify(name)
