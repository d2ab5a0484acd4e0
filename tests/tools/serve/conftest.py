"""Fixtures: the program of tests/tools/top with a server for it, and tests/tools/live's program, which takes a heap
profile."""

import sys

import blackbox
import pytest

sys.path[:0] = [str(blackbox.REPOSITORY / folder) for folder in ("python", "tests/tools/top", "tests/tools/live")]

from busy_fixtures import busy, program  # noqa: E402
from serving import serving  # noqa: E402

__all__ = ["busy", "program", "server"]


@pytest.fixture
def server(busy):
    with serving(busy.pid, "--interval", "0.2") as running:
        yield running
