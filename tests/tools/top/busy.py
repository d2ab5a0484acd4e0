"""Runs busy.c for the tests of top and serve."""

from contextlib import contextmanager
from pathlib import Path

from commanded import Commanded, commanded

SOURCE = Path(__file__).with_name("busy.c")
HELD, HELD_CLASS, MINE, MINE_CLASS, HUGE = 20000, 112, 500, 3072, 8 << 20


class Busy(Commanded):
    """The program and its commands."""

    def grow(self, blocks):
        self.tell("grow", blocks, answer="grown")


@contextmanager
def busy(program, library, **more):
    """Runs busy.c on the library, or on the system's malloc with library=None."""
    with commanded(Busy, program, library, **more) as running:
        yield running
