"""Fixtures: busy.c's program, and the tools' package."""

import sys

import blackbox
import pytest

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

import busy as programs  # noqa: E402


@pytest.fixture(scope="session")
def program(compiled):
    return compiled(programs.SOURCE, "-pthread", "-O1")


@pytest.fixture
def busy(program, library):
    with programs.busy(program, library) as running:
        yield running
