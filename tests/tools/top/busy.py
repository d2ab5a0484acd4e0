"""Runs busy.c for the tests of top and serve."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import blackbox

SOURCE = Path(__file__).with_name("busy.c")
HELD, HELD_CLASS, MINE, MINE_CLASS, HUGE = 20000, 112, 500, 3072, 8 << 20


class Busy:
    """The program and its commands."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

    def tell(self, line, answer):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == answer

    def grow(self, blocks):
        self.tell(f"grow {blocks}", "grown")

    def end(self):
        """Ends it, and waits until the kernel has nothing left of it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def busy(program, library, **more):
    """Runs busy.c on the library, or on the system's malloc with library=None."""
    process = subprocess.Popen([str(program)], env=blackbox.environment(preload=library), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, **more)
    try:
        assert process.stdout.readline() == "ready\n"
        yield Busy(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
