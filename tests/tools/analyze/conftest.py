"""Fixtures: the command, and programs that hold memory."""

import os
import sys
from pathlib import Path

import blackbox
import pytest

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
HERE = Path(__file__).parent


def hakmem(*arguments, **more):
    env = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1",
           "HAKMEM_BUILD_DIR": str(BUILD), **more.pop("env", {})}
    return blackbox.run([sys.executable, "-m", "hakmem", *arguments], env=env, **more)


@pytest.fixture
def holding(compiled, ready):
    """holding(words, preload=..., env=...) runs holds.c until the test ends, and returns the process once it printed
    "ready"."""
    return lambda *words, **more: ready([compiled(HERE / "holds.c"), *words], **more)
