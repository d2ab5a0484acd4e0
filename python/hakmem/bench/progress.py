"""What the terminal shows while a run goes on: a bar, or a line a block where there is no terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


class Bar:
    """A bar over the time that is gone and the time that is left, with the row, the allocator and the round."""

    def __init__(self, elapsed=0.0):
        self.began = time.monotonic() - elapsed
        self.left = 0.0
        self.marked = time.monotonic()
        self.progress = Progress(TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
                                 TaskProgressColumn(), TextColumn("{task.fields[left]}"),
                                 console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task("", total=1.0, left="")

    def __enter__(self):
        self.progress.start()
        return self

    def __exit__(self, *_):
        self.progress.stop()

    def block(self, block, estimated, left):
        self.left, self.marked = left, time.monotonic()

    def step(self, row, allocator, number):
        now = time.monotonic()
        elapsed, left = now - self.began, max(0.0, self.left - (now - self.marked))
        what = "system calls" if number is None else f"round {number + 1}"
        self.progress.update(self.task, description=f"{row} · {allocator} · {what}", completed=elapsed,
                             total=max(elapsed + left, 0.001), left=f"{clock(left)} left" if self.left else "")

    def done(self, block, seconds):
        pass


class Lines:
    """The same for a log."""

    def __init__(self, elapsed=0.0):
        self.began = time.monotonic() - elapsed
        self.left = 0.0
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def block(self, block, estimated, left):
        self.left = left

    def step(self, row, allocator, number):
        pass

    def done(self, block, seconds):
        what = "system calls" if block.number is None else f"round {block.number + 1}"
        left = max(0.0, self.left - seconds)
        self.console.print(f"{clock(time.monotonic() - self.began)}  {block.row}: {what} in {seconds:.1f} s"
                           + (f", {clock(left)} left" if self.left else ""))


def for_terminal(elapsed=0.0):
    return Bar(elapsed) if Console(stderr=True).is_terminal else Lines(elapsed)
