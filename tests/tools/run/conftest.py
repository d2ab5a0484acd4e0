"""Fixtures of the tests of `hakmem run`."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def counts(compiled):
    """A program that makes as many calls of malloc as its argument says."""
    return compiled(Path(__file__).parent / "counts.c")
