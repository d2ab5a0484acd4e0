"""What `hakmem peers build` shows during the build: the peer, the step, the time, and the end of the growing log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click

from hakmem.status_line import clock, draw_line, is_terminal

# Without a terminal: seconds after which a step's line is printed again.
SECONDS = 30
# On a terminal: seconds after which the line is redrawn.
REDRAWN = 0.5
TAIL = 400


class Display:
    """What is told of the progress of a build. This class shows nothing."""

    def begin(self, name: str, log: str | Path) -> None:
        """The build of a peer begins. log: the file of its output."""

    def step(self, words: Sequence[str]) -> None:
        """A command of the build begins."""

    def end(self) -> None:
        """The build is over."""


def step_text(words: Sequence[str]) -> str:
    """Returns what a command of a build is for, with its program."""
    program = os.path.basename(words[0])
    if program in ("sh", "cmake") and "--build" not in words:
        return f"configuring ({'configure' if program == 'sh' else program})"
    known = {"cargo": "fetching", "cmake": "building", "make": "building", "cc": "building the check",
             "probe": "checking it with a program of ours", os.path.basename(sys.executable): "checking it with Python"}
    return f"{known.get(program, 'running')} ({program})"


def last_line(log: Path) -> str:
    """Returns the last line of a log that a step has written since it began."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "" if last.startswith("$ ") else last


class Progress(Display):
    """Shows the progress on standard error: one line that is redrawn on a terminal, else a line from time to time."""

    def __init__(self) -> None:
        self.name, self.words = "", ""
        self.log = Path(os.devnull)
        self.is_terminal = is_terminal()
        self.began = self.step_began = self.told = time.monotonic()
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self, name: str, log: str | Path) -> None:
        """The build of a peer begins. log: the file of its output."""
        self.name, self.log, self.words = name, Path(log), "looking at what is there"
        self.began = self.step_began = self.told = time.monotonic()
        click.echo(f"{name}: log {log}", err=True)
        self.ended.clear()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def step(self, words: Sequence[str]) -> None:
        """A command of the build begins."""
        self.words, self.step_began, self.told = step_text(list(words)), time.monotonic(), time.monotonic()
        if self.thread and not self.is_terminal:
            click.echo(f"{self.name}: {clock(time.monotonic() - self.began)}  {self.words}", err=True)

    def end(self) -> None:
        """The build is over."""
        if self.thread:
            self.ended.set()
            self.thread.join()
            self.thread = None
            if self.is_terminal:
                draw_line("")

    def run(self) -> None:
        """Updates the display until the end."""
        while not self.ended.wait(REDRAWN):
            now = time.monotonic()
            if self.is_terminal:
                draw_line(f"{self.name}  {clock(now - self.began)}  {self.words} ({clock(now - self.step_began)})  "
                          f"{last_line(self.log)}")
            elif now - self.told >= SECONDS:
                self.told = now
                click.echo(f"{self.name}: {clock(now - self.began)}  {self.words}: {last_line(self.log)[:80]}",
                           err=True)
