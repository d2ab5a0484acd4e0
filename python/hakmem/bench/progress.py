"""What the terminal shows during a run: a bar, or a line for each block if there is no terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from hakmem.status_line import clock, draw_line, is_terminal

if TYPE_CHECKING:
    from hakmem.bench.schedule import Block

WIDTH = 24


class Display:
    """What is told of the progress of a run, of which `elapsed` seconds are over. This class shows nothing."""

    def __init__(self, elapsed: float = 0.0) -> None:
        self.began = time.monotonic() - elapsed
        self.left = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def block(self, block: Block, estimated: float, left: float) -> None:
        """A block begins; `left` is the estimated time of the rest of the run."""
        self.left = left

    def step(self, row: str, allocator: str, number: int | None) -> None:
        """A run of the row on the allocator begins. number: the round; None for system calls."""

    def done(self, block: Block, seconds: float) -> None:
        """A block is over."""


class Bar(Display):
    """A bar of the time spent and the time left, with the row, the allocator and the round."""

    def __init__(self, elapsed: float = 0.0) -> None:
        super().__init__(elapsed)
        self.marked = time.monotonic()

    def __exit__(self, *_: object) -> None:
        draw_line("")

    def block(self, block: Block, estimated: float, left: float) -> None:
        """Notes the time at which `left` was estimated."""
        self.left, self.marked = left, time.monotonic()

    def step(self, row: str, allocator: str, number: int | None) -> None:
        """Draws the bar."""
        now = time.monotonic()
        elapsed, left = now - self.began, max(0.0, self.left - (now - self.marked))
        what = "system calls" if number is None else f"round {number + 1}"
        share = elapsed / max(elapsed + left, 0.001)
        bar = "━" * round(WIDTH * share) + "─" * (WIDTH - round(WIDTH * share))
        told = f" {clock(left)} left" if self.left else ""
        draw_line(f"{row} · {allocator} · {what} {bar} {share:4.0%}{told}")


class Lines(Display):
    """Prints a line for each block, for a log."""

    def done(self, block: Block, seconds: float) -> None:
        """Prints the block's line."""
        what = "system calls" if block.number is None else f"round {block.number + 1}"
        left = max(0.0, self.left - seconds)
        click.echo(f"{clock(time.monotonic() - self.began)}  {block.row}: {what} in {seconds:.1f} s"
                   + (f", {clock(left)} left" if self.left else ""), err=True)


def for_terminal(elapsed: float = 0.0) -> Display:
    """Returns a Bar for a terminal, else Lines."""
    return Bar(elapsed) if is_terminal() else Lines(elapsed)
