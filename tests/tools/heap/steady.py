"""Runs steady.c on HAKMEM without any option."""

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import blackbox

SOURCE = Path(__file__).with_name("steady.c")
# The usual flags: stacks are found by unwind tables.
FLAGS = ("-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-pthread")


class Steady:
    def __init__(self, process):
        self.process, self.pid = process, process.pid

    def tell(self, *words):
        self.send(*words)
        assert self.process.stdout.readline() == "done\n"

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def maps(self):
        return Path(f"/proc/{self.pid}/maps").read_text()


@contextmanager
def steady(program, library, **variables):
    process = subprocess.Popen([str(program)], env=blackbox.environment(variables, preload=library),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield Steady(process)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
