"""Fixtures for the tests of top and serve: busy.c's program, compiled and running."""

import busy as programs
import pytest


@pytest.fixture(scope="session")
def program(compiled):
    return compiled(programs.SOURCE, "-pthread", "-O1")


@pytest.fixture
def busy(program, library):
    with programs.busy(program, library) as running:
        yield running
