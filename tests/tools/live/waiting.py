"""Runs a program that obeys commands."""

import subprocess

import blackbox


class Waiting:
    """A program that has printed "ready". ask() sends a line and returns the words of the answer."""

    def __init__(self, argv, preload=None, env=None):
        self.process = subprocess.Popen(
            [str(argument) for argument in argv], env=blackbox.environment(env, preload), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def held(self):
        """The program's own count of blocks, by usable size."""
        return {int(size): int(count) for size, _, count in (word.partition(":") for word in self.ask("count"))}

    def end(self):
        blackbox.stop_session(self.process)
        self.process.communicate()
