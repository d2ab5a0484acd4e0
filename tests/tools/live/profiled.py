"""Runs profiled.c for the tests that read a heap profile from outside."""

from contextlib import contextmanager
from pathlib import Path

from commanded import Commanded, commanded

SOURCE = Path(__file__).with_name("profiled.c")
FLAGS = ("-fno-omit-frame-pointer", "-Wl,--build-id")


class Profiled(Commanded):
    """The program and its commands."""

    ANSWER = "0"

    def exec(self):
        """Makes it restart itself without a profile."""
        self.tell("again", answer="ready")


@contextmanager
def profiled(program, library, mean=4096, **variables):
    """Runs it, with a profile from the start unless mean is None. Its own file goes nowhere."""
    if mean is not None:
        variables = {"HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": str(mean), **variables}
    with commanded(Profiled, program, library, variables) as running:
        yield running
