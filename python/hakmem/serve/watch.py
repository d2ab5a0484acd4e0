"""The processes that are served: each is looked at again and again, and what was seen is kept."""

import asyncio
import time
from collections import deque
from dataclasses import asdict, dataclass

from hakmem.live.memory import LiveError, NoProcess
from hakmem.top.sample import Sample, Sampler, rates

# Looks that are kept for the charts.
HISTORY = 600
# At most this share of the time goes into looking at one process, however large its heap is.
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


class Watch:
    """One process. `state` is running, ended, or unread: the last look failed, as `problem` says.

    The first look is taken at once; what it raises is the caller's.
    """

    def __init__(self, pid):
        self.pid = pid
        self.sampler = Sampler(pid)
        self.state, self.problem = "running", ""
        self.points = deque(maxlen=HISTORY)
        self.sample: Sample | None = None
        self.ended_at = None
        self.note(self.sampler.take())

    def note(self, sample):
        found = rates(self.sample, sample)
        number = self.points[-1].number + 1 if self.points else 1
        a_second = None if found is None else {
            **found.counters, "minor_faults": found.minor_faults, "major_faults": found.major_faults, "rss": found.rss}
        self.points.append(Point(number=number, time=sample.shot.time, rss=sample.rss, **sample.resident.parts(),
                                 rates=a_second))
        self.sample = sample
        self.state, self.problem = "running", ""

    def fail(self, error):
        """A look failed."""
        self.state, self.problem = "unread", str(error)
        if isinstance(error, NoProcess):
            self.state, self.ended_at = "ended", time.time()

    async def run(self, interval):
        """Looks until the process ends."""
        while self.state != "ended":
            begun = time.monotonic()
            try:
                sample = await asyncio.to_thread(self.sampler.take)
            except LiveError as error:
                self.fail(error)
            except Exception:
                self.state, self.problem = "unread", "an error of hakmem serve itself; its output says more"
                raise
            else:
                self.note(sample)
            took = time.monotonic() - begun
            await asyncio.sleep(max(interval - took, took * (1 / LOOKING - 1)))

    def about(self):
        """What a list of processes says of this one."""
        shot = self.sample.shot
        return {"pid": self.pid, "command": shot.command, "version": shot.version, "state": self.state,
                "problem": self.problem, "ended_at": self.ended_at}

    def history(self, after):
        """The points behind number `after`."""
        return [asdict(point) for point in self.points if point.number > after]
