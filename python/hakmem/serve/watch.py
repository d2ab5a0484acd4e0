"""Watches the served processes: looks at each one repeatedly and keeps what it sees."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hakmem.live.memory import UNSOUND, LiveError, NoProcess, problem_text
from hakmem.live.model import BlockPool, Figures, Pool, Scope, SizeClass, Thread, Totals
from hakmem.live.sample import rates
from hakmem.serve.target import Target

# How many looks are kept for the charts.
HISTORY = 600
# The most requests that wait for one worker. Each look waits behind them.
WAITING_MOST = 8
# Looking at one process takes at most this share of the time, however large its heap is.
LOOKING = 0.25


@dataclass
class Point:
    """What the charts show of one look."""

    number: int
    time: float  # since the epoch, in seconds
    rss: int
    live: int
    cached: int
    free_in_slab: int
    retained: int
    metadata: int
    other: int
    rates: dict[str, float | None] | None  # a second, since the look before; None: there was none


@dataclass
class Subject:
    """A process, or the sums of a group of processes. name: the values of its labels. shot: of a group, it has no
    tables. age: seconds since the look."""

    name: tuple[str, ...]
    processes: int
    shot: Figures
    rss: int
    resident: dict[str, int]
    minor_faults: int
    major_faults: int
    took: float
    age: float = 0
    up: bool = True


class Seen:
    """A look, as a worker reports it. heap: the snapshot as JSON values. shot: the parts that metrics need, as
    objects."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.at, self.took, self.program = told.pop("at"), told.pop("took"), told.pop("program")
        self.heap, self.rss, self.resident = told, told["rss"], told["resident"]
        self.minor_faults, self.major_faults = told["minor_faults"], told["major_faults"]
        self.shot = Figures(
            **{name: told[name] for name in ("time", "pid", "command", "version", "counters")},
            totals=Totals(**told["totals"]), classes=[SizeClass(**row) for row in told["classes"]],
            threads=[Thread(**row) for row in told["threads"]], pools=[Pool(**row) for row in told["pools"]],
            block_pools=[BlockPool(**row) for row in told["block_pools"]],
            scopes=[Scope(**row) for row in told["scopes"]])


class Watches:
    """The processes that the server was asked to serve."""

    labels: tuple[str, ...] = ("pid", "command")

    def __init__(self, pids: Iterable[int], deadline: float, interval: float) -> None:
        self.watches = {str(pid): Watch(pid, deadline) for pid in pids}
        self.deadline, self.interval = deadline, interval

    async def start(self) -> None:
        """Looks at each process once; raises LiveError if a look fails."""
        for result in await asyncio.gather(*(watch.look() for watch in self.watches.values()), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def run(self) -> None:
        """Looks until all processes have ended."""
        await asyncio.gather(*(watch.run(self.interval) for watch in self.watches.values()))

    def stop(self) -> None:
        """Lets no look begin any more."""
        for watch in self.watches.values():
            watch.stopping = True

    async def end(self) -> None:
        """Ends all workers, when nothing asks them."""
        await asyncio.gather(*(watch.target.end() for watch in self.watches.values()))

    def listed(self) -> list[dict[str, object]]:
        """Returns the entries of all processes."""
        return [watch.about() for watch in self.watches.values()]

    def pid_named(self, name: str) -> str | None:
        """Returns the PID of the largest process with this command."""
        found = [watch for watch in self.watches.values() if watch.sample.shot.command == name]
        return str(max(found, key=lambda watch: watch.sample.rss).pid) if found else None

    def only(self) -> Watch | None:
        """Returns the only process, if there is one."""
        return next(iter(self.watches.values())) if len(self.watches) == 1 else None

    def known(self, text: str) -> Watch | None:
        """Returns the Watch of a PID."""
        return self.watches.get(text)

    async def wanted(self, watch: Watch) -> Watch:
        """Returns a known Watch, whose looks go on."""
        return watch

    def served(self) -> str:
        """Returns which processes there are, for a message."""
        return ", ".join(self.watches)

    def marks(self) -> list[tuple[str, int]]:
        """Returns what changes when the metrics do."""
        return [(watch.state, watch.points[-1].number) for watch in self.watches.values()]

    def subjects(self) -> Iterator[Subject]:
        """Yields the figures of each process; of one that has ended, only that."""
        for watch in self.watches.values():
            seen, name = watch.sample, (str(watch.pid), watch.sample.shot.command)
            yield Subject(name, 1, seen.shot, seen.rss, seen.resident, seen.minor_faults, seen.major_faults, seen.took,
                          up=watch.state == "running")

    def resources(self) -> list[dict[str, str | int]]:
        """Returns the attributes of each process in OpenTelemetry's words, and when it began."""
        return [{"service.name": watch.sample.shot.command, "process.pid": watch.pid, "begun": watch.target.begun}
                for watch in self.watches.values() if watch.state == "running"]

    def own_figures(self) -> dict[str, tuple[str, float]]:
        """Returns {name: (meaning, figure)} of the server itself."""
        return {}


class Watch:
    """One process. `state` is running, ended, or unread (the last look failed; `problem` says why)."""

    def __init__(self, pid: int, deadline: float) -> None:
        self.pid = pid
        self.target = Target(pid, deadline)
        self.state, self.problem = "running", ""
        self.points: deque[Point] = deque(maxlen=HISTORY)
        self.latest: Seen | None = None
        self.ended_at: float | None = None
        self.stopping = False  # as the server ends
        self.waiting = 0  # requests that the worker has not answered

    @property
    def sample(self) -> Seen:
        """The latest look that succeeded. The server starts only after the first one."""
        if self.latest is None:
            raise LiveError(f"process {self.pid}: no look at it succeeded yet")
        return self.latest

    async def asked(self, do: str, **more: object) -> Any:
        """Returns the worker's answer for a request. Raises LiveError if many requests wait for the worker already."""
        if self.waiting >= WAITING_MOST:
            raise LiveError(f"process {self.pid}: {WAITING_MOST} requests wait for it already; ask again later")
        self.waiting += 1
        try:
            return await self.target.ask(do, **more)
        finally:
            self.waiting -= 1

    async def look(self) -> None:
        """Looks once; raises LiveError if that fails."""
        told = await self.target.ask("look")
        try:
            self.note(Seen(told))
        except UNSOUND as error:
            raise LiveError(f"process {self.pid}: it makes no sense ({problem_text(error)})") from error

    def note(self, sample: Seen) -> None:
        """Keeps a sample as the latest point."""
        found = rates(self.latest, sample)
        number = self.points[-1].number + 1 if self.points else 1
        a_second = None if found is None else {
            **found.counters, "minor_faults": found.minor_faults, "major_faults": found.major_faults, "rss": found.rss}
        self.points.append(
            Point(number=number, time=sample.shot.time, rss=sample.rss, **sample.resident, rates=a_second))
        self.latest = sample
        self.state, self.problem = "running", ""

    def fail(self, error: LiveError) -> None:
        """Notes that a look failed."""
        self.state, self.problem = "unread", str(error)
        if isinstance(error, NoProcess):
            self.state, self.ended_at = "ended", time.time()

    async def run(self, interval: float) -> None:
        """Looks until the process ends. Notes a look that fails, and goes on.

        Before Python 3.12, asyncio.wait_for() drops a cancellation that arrives together with an answer. Therefore
        `stopping` is checked too."""
        while self.state != "ended" and not self.stopping:
            begun = time.monotonic()
            try:
                await self.look()
            except LiveError as error:
                self.fail(error)
            if self.stopping:
                return
            took = time.monotonic() - begun
            await asyncio.sleep(max(interval - took, took * (1 / LOOKING - 1)))

    def about(self) -> dict[str, object]:
        """Returns the entry of this process in a list of processes."""
        shot = self.sample.shot
        return {"pid": self.pid, "command": shot.command, "version": shot.version, "state": self.state,
                "problem": self.problem, "ended_at": self.ended_at}

    def history(self, after: int) -> list[dict[str, object]]:
        """Returns the points after number `after`."""
        return [asdict(point) for point in self.points if point.number > after]
