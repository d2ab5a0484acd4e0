"""What the tests of `hakmem doctor` share: programs that wait, and questions about them."""

import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import blackbox
from inprocess import hakmem

SOURCES = Path(__file__).parent
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()


@dataclass
class Answer:
    status: int
    findings: list

    def of(self, subject):
        return [finding for finding in self.findings if finding["subject"] == subject]

    def one(self, level, subject, *words):
        """The only finding of this level and subject that names these files, variables, functions or numbers."""
        found = [finding for finding in self.of(subject) if finding["level"] == level
                 and all(word in finding["seen"] + finding["advice"] for word in words)]
        assert len(found) == 1, f"{level} {subject} {words}: {json.dumps(self.findings, indent=1)}"
        return found[0]

    def bad(self):
        return {finding["subject"] for finding in self.findings if finding["level"] in ("warning", "problem")}


def doctor(*arguments, env=None):
    return hakmem("doctor", *arguments, **{"HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "200", **(env or {})})


def ask(*arguments, **more):
    result = doctor("--json", *arguments, **more)
    assert result.status in (0, 1), result.report()
    answer = json.loads(result.stdout)
    assert answer["status"] == result.status
    return Answer(result.status, answer["findings"])


@contextmanager
def waiting(*command, preload=None, env=None, **more):
    """Runs a program that reports when it is ready, and yields its PID."""
    process = subprocess.Popen([str(word) for word in command], env=blackbox.environment(env, preload),
                               stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               **more)
    try:
        line = process.stdout.readline()
        assert line == "ready\n", f"{command}: {line!r} {process.stderr.read()}"
        yield process.pid
    finally:
        process.stdin.close()
        try:
            process.wait(blackbox.HANG)
        finally:
            blackbox.stop_session(process)
            process.wait()
            process.stdout.close()
            process.stderr.close()


def ask_about(*command, preload=None, env=None, **more):
    with waiting(*command, preload=preload, env=env, **more) as pid:
        return ask(str(pid))
