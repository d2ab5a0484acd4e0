"""Fixtures: waiting programs with their own names, and the command."""

import os
import shutil
import sys
from pathlib import Path

import blackbox
import pytest

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
WAITS = blackbox.REPOSITORY / "tests/tools/doctor/waits.c"
ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1",
               "HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300"}


def own(name):
    """A name that no process of another run of these tests has."""
    return f"h{os.getpid()}{name}"


@pytest.fixture
def waiting(compiled, ready, tmp_path):
    """waiting(name, preload=...) runs a program of that file name until the test ends, and returns the ready
    process."""
    def run(name="hakwaits", preload=None, words=(), argv0=None, **more):
        program = tmp_path / name
        if not program.exists():
            shutil.copy(compiled(WAITS), program)
        return ready([argv0 or program, *words], preload=preload, executable=str(program), **more)

    return run
