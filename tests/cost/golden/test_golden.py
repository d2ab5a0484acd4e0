"""Protects HAKMEM's deterministic costs: they equal the golden files (see check.py)."""

import check
import pytest


@pytest.mark.parametrize("name", check.CHECKS)
def test_cost(name):
    failure = None
    try:
        check.verify(name, check.default_subject())
    except check.CheckError as error:
        failure = str(error)
    if failure:
        pytest.fail(failure, pytrace=False)
