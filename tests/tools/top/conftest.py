"""Fixtures: busy.c's program, and the tools' package."""

import sys

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from busy_fixtures import busy, program  # noqa: E402

__all__ = ["busy", "program"]
