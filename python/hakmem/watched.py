"""`hakmem run` that examines the program at its end, however it ends.

For a heap profile another process watches, and this one becomes the program, as always. For a budget this process
stays, because it decides the exit status, and the program is its child.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hakmem import budget, markdown
from hakmem.extras import extra
from hakmem.heap.file import ProfileError, write_whole
from hakmem.live.memory import LiveError
from hakmem.supervise import Ending, Forbidden, Supervisor, end_as, shell_status

if TYPE_CHECKING:
    from hakmem.budget import Bound
    from hakmem.starter import Plan


class Profile:
    """The heap profile that HAKMEM_HEAP_PROFILE names. The library writes it if the program ends by exit. If it ends
    by _exit or a signal, this class does."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.pattern = environment["HAKMEM_HEAP_PROFILE"]
        self.often = environment.get("HAKMEM_HEAP_PROFILE_INTERVAL", "0") not in ("", "0")
        self.before = self.state(self.path(0)) if "%p" not in self.pattern else None

    def path(self, pid: int, number: int = 1) -> str:
        """Returns the pattern's file for a process, named as src/profile/dump.c does."""
        return re.sub("%(.)", lambda found: {"p": str(pid), "n": str(number), "%": "%"}.get(found[1], found[0]),
                      self.pattern)

    @staticmethod
    def state(path: str) -> tuple[int, int, int] | None:
        """Returns what changes if the file is written; None if it does not exist."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def written(self, pid: int) -> bool:
        """Returns whether the library wrote the profile at the end."""
        return not self.often and self.state(self.path(pid)) not in (None, self.before)

    def at_end(self, ending: Ending) -> None:
        """Writes the profile of an ending process, unless the library did."""
        killed = os.WIFSIGNALED(ending.status)
        if not killed and self.written(ending.pid):
            return
        from hakmem.heap.outside import look, packed, whole
        from hakmem.live import ProcessMemory, find

        number = 1
        while "%n" in self.pattern and os.path.exists(self.path(ending.pid, number)):
            number += 1
        path = self.path(ending.pid, number)
        try:
            memory = ProcessMemory(ending.thread)
            write_whole(path, packed(whole(look(memory, find(memory)))))
        except (LiveError, ProfileError) as error:
            if killed:  # otherwise the library has said why
                click.echo(f"hakmem: {path} could not be written: {error}", err=True)


def run(ctx: click.Context, name: str, plan: Plan, bounds: Sequence[Bound]) -> None:
    """Runs the program NAME and ends as it did, or with 1 if it exceeds its budget. Without a budget it returns, and
    this process becomes the program."""
    variables = {**plan.environment, **plan.settings}
    profile = Profile(variables) if variables.get("HAKMEM_HEAP_PROFILE") else None
    if not bounds:
        # If watching is forbidden, the library writes the profile, unless the program ends by _exit or a signal.
        if profile:
            Supervisor(plan.command, plan.environment, profile.at_end).beside()
        return
    figures: dict[str, int] = {}
    problems: list[str] = []
    if any(bound.figure.name == "leaked" for bound in bounds):
        # As in leaks/command.py. The program gets its own environment, which this does not change.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with extra("leaks", "a budget of leaked bytes"):
            import hakmem.leaks.report  # noqa: F401 (before the program runs)

    def at_end(ending: Ending) -> None:
        if profile:
            profile.at_end(ending)
        try:
            figures.update(budget.figures_of(ending, bounds))
        except LiveError as error:
            problems.append(str(error))

    try:
        status = Supervisor(plan.command, plan.environment, at_end).run()
    except Forbidden as error:
        raise click.ClickException(f"--budget: {error}") from error
    own = shell_status(status)
    if not figures:
        click.echo(f"hakmem: the budget could not be looked at: {'; '.join(problems) or name + ' did not start'}",
                   err=True)
        ctx.exit(own or 1)
    above = [bound for bound in bounds if figures[bound.figure.name] > bound.most]
    for bound in above or bounds:
        click.echo(f"hakmem: {name}: {bound.text(figures[bound.figure.name])}", err=True)
    markdown.put(plan.markdown, budget.markdown_of(name, bounds, figures))
    if own or not above:
        end_as(status)
    ctx.exit(1)
