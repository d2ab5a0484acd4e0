"""Fixtures of programs that wait while a tool reads them."""

import sys
from pathlib import Path

import blackbox
import pytest

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from inprocess import hakmem as command  # noqa: E402
from waiting import Waiting  # noqa: E402

__all__ = ["command"]


@pytest.fixture
def start():
    """start(argv, preload, env) runs a program until the test ends, and waits for its "ready" unless ready=False."""
    running = []

    def run(argv, preload=None, env=None, ready=True):
        running.append(Waiting(argv, preload, env))
        return running[-1].ready() if ready else running[-1]

    yield run
    for program in running:
        program.end()


@pytest.fixture
def known(start, compiled, library):
    """known() starts known.c on HAKMEM, which obeys commands."""
    return lambda **arguments: start([compiled(HERE / "known.c")], library, **arguments)


@pytest.fixture
def churn(start, compiled, library):
    return start([compiled(HERE / "churn.c")], library)


@pytest.fixture
def stir(start, compiled, library):
    """stir(env) starts the program that changes its memory at full speed."""
    return lambda env=None: start([compiled(HERE / "stir.c"), 4], library, env)


@pytest.fixture(name="hakmem")
def hakmem_command():
    """hakmem(...) runs the command, which must succeed, and returns its output."""
    def run(*arguments):
        result = command(*arguments)
        assert result.status == 0, result.report()
        return result.stdout
    return run
