"""Runs of the soak: a program with its settings, watched for hangs and for its memory."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blackbox  # noqa: E402

REPOSITORY_TESTS = Path(__file__).resolve().parents[2]

MIB = 1 << 20
SAMPLE_SECONDS = 0.25


class Failure(Exception):
    """The fault of a run."""


@dataclass
class Job:
    """A program to run. seconds: its time on an idle machine. most_mib: its largest RSS."""

    command: list
    seconds: float = 10
    most_mib: int = 2048
    preload: bool = False
    settings: dict = field(default_factory=dict)
    wanted: str = ""  # in its standard output
    folder: str | None = None

    def text(self):
        settings = "".join(f"{name}={value} " for name, value in self.settings.items())
        return settings + " ".join(map(str, self.command))


def resident(pid):
    """Resident bytes, or 0 when the process has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def patience(seconds):
    """The time after which a run counts as hanging. Others may use the machine."""
    return 120 + 20 * seconds


def run(job):
    """Peak RSS in bytes. Raises Failure for anything but a normal end in time and within bounds."""
    peak, over = 0, threading.Event()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        env = blackbox.environment(job.settings, blackbox.LIBRARY if job.preload else None)
        process = subprocess.Popen([str(word) for word in job.command], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=errors, env=env, cwd=job.folder, start_new_session=True)
        end = time.monotonic() + patience(job.seconds)
        try:
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                if time.monotonic() > end:
                    stacks = blackbox.thread_stacks(process.pid)
                    raise Failure(f"hangs: no end after {patience(job.seconds):.0f} s: {job.text()}\n{stacks}")
                over.wait(SAMPLE_SECONDS)
        finally:
            blackbox.stop_session(process)
            process.wait()
        said, erred = (file.seek(0) or file.read().decode(errors="replace") for file in (output, errors))
    outputs = f"{job.text()}\n--- stdout ---\n{said[-1500:]}\n--- stderr ---\n{erred[-3000:]}"
    if process.returncode != 0:
        raise Failure(f"ends with {process.returncode}: {outputs}")
    if job.wanted not in said:
        raise Failure(f"does not say {job.wanted!r}: {outputs}")
    if peak > job.most_mib * MIB:
        raise Failure(f"its RSS was {peak // MIB} MiB, {job.most_mib} are its bound: {job.text()}")
    return peak
