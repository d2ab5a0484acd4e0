"""Runs the command `hakmem` inside the test's own process. A new interpreter for each command would cost most of the
tests' time. blackbox.run() is for commands that need a process: another user, a limit, a terminal, a signal."""

import json
import os
import re
import resource
import sys

import click.testing

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.cli import main  # noqa: E402  (stands on the path)


NOBODY = 65534


class Ended(blackbox.Result):
    """A command's exit status and output."""

    def says(self, status, *words):
        """Checks a refusal: the status, no output, and an error message with these words: a PID, a file, an option."""
        assert self.status == status and not self.stdout, self.report()
        text = " ".join(self.stderr.split())
        assert text and all(str(word) in text for word in words), (words, self.report())


def hakmem(*words, **variables):
    """Runs `hakmem WORDS` with these variables. An error that the command does not foresee fails the test."""
    environment = {name: None for name in os.environ if blackbox.PRIVATE_VARIABLE.match(name)}
    # `stats`, `explain` and `map` bound the memory of the process that they run in.
    space = resource.getrlimit(resource.RLIMIT_AS)
    try:
        done = click.testing.CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False,
                                                env={**environment, "LC_ALL": "C.UTF-8", "TZ": "UTC", **variables})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, space)
    return Ended(done.exit_code, done.stdout, done.stderr)


def as_nobody(*words):
    """Runs `hakmem WORDS` as the user nobody, who may be unable to read the checkout. Root has run the command before,
    so that no module is left to be read."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(here)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            done = hakmem(*words)
            with open(there, "w", encoding="utf-8") as pipe:
                json.dump([done.status, done.stdout, done.stderr], pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(there)
    with open(here, encoding="utf-8") as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the command failed in a way that it does not foresee"
    return Ended(*json.loads(text))


def figures(text):
    """The numbers of a text, with their units, without the blanks and words around them: "8 KiB", "72.7 %", "1,000"."""
    return re.findall(r"[-+]?\d(?:[\d,.]*\d)?(?: (?:[KMGTPE]i)?B\b| %| ms\b| s\b| min\b| h\b)?", text)
