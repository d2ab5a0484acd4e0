"""Fixtures of the tests of `hakmem run`."""

import os
import sys
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()


@pytest.fixture(scope="session")
def counts(compiled):
    """A program that makes as many calls of malloc as its argument says."""
    return compiled(Path(__file__).parent / "counts.c")


@pytest.fixture(params=["script", "package"])
def launch(request):
    """launch(ARGUMENTS) is `hakmem run ARGUMENTS` by ./hakmem, and by the package's command."""
    command = [blackbox.REPOSITORY / "hakmem"] if request.param == "script" else [sys.executable, "-m", "hakmem"]

    def launch(*arguments, env=None, **more):
        return blackbox.run([*command, "run", *arguments],
                            env={"HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300", **(env or {})}, **more)

    return launch
