"""Runs profiled.c for the tests that read a heap profile from outside."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import blackbox

SOURCE = Path(__file__).with_name("profiled.c")
FLAGS = ("-fno-omit-frame-pointer", "-Wl,--build-id")


class Profiled:
    """The program and its commands."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer == "0\n", (words, answer)

    def exec(self):
        """Makes it restart itself without a profile."""
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def profiled(program, library, mean=4096, **variables):
    """Runs it, with a profile from the start unless mean is None. Its own file goes nowhere."""
    if mean is not None:
        variables = {"HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": str(mean),
                     "HAKMEM_HEAP_PROFILE_OVERHEAD": "0", **variables}
    process = subprocess.Popen([str(program)], env=blackbox.environment(variables, preload=library),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield Profiled(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
