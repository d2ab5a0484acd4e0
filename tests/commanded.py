"""Runs a program that does what lines on its standard input say, and answers each."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import blackbox


class Commanded:
    """The program. ANSWER is its answer to each command."""

    ANSWER = "done"

    def __init__(self, process):
        self.process, self.pid = process, process.pid

    def send(self, *words):
        """Sends a command and does not wait for the answer."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def tell(self, *words, answer=None):
        """Sends a command and waits until the program has done it."""
        self.send(*words)
        said = self.process.stdout.readline()
        assert said == f"{answer or self.ANSWER}\n", (words, said)

    def maps(self):
        return Path(f"/proc/{self.pid}/maps").read_text()

    def end(self):
        """Ends it, and waits until the kernel has nothing left of it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def commanded(kind, program, library, variables=None, **more):
    """Runs a program on the library, or on the system's malloc with library=None, until it says that it is ready.
    Yields it as the subclass `kind` of Commanded."""
    process = subprocess.Popen([str(program)], env=blackbox.environment(variables, preload=library),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    try:
        said = process.stdout.readline()
        assert said == "ready\n", (said, process.stderr.read() if process.stderr else "")
        yield kind(process)
    finally:
        process.kill()
        process.communicate()
