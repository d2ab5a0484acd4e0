"""Looks at any process that it is asked about, for `hakmem serve` without a PID. Runs in a worker, as worker.py."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hakmem.clean import clean
from hakmem.foreign import read_proc
from hakmem.live.descriptor import may_serve
from hakmem.live.memory import UNSOUND, LiveError, NoPermission, NoProcess, ProcessMemory, problem_text, stat_fields
from hakmem.live.sample import Sampler
from hakmem.serve.places import Place, place_of, within

if TYPE_CHECKING:
    from hakmem.serve.otlp import Changes

# A process without HAKMEM is searched again once it is twice as old, or after this many seconds: when it was searched
# first, its loader may have been at work, and dlopen() may load HAKMEM later.
AGAIN_SECONDS = 300
TICKS = os.sysconf("SC_CLK_TCK")
STARTED, FIELDS = 19, 20  # the place of the start time among the fields of /proc/PID/stat, and how many are needed
UNSEEN: dict[str, object] = {"unseen": True}


@dataclass
class Known:
    """A process that was looked at. image: its program's file, which exec changes. sampler: None without HAKMEM."""

    begun: int
    image: tuple[int, int]
    sampler: Sampler | None
    search_at: float


class Survey:
    """Looks at processes."""

    pid = begun = 0

    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.files: dict[tuple[str, int, str, int], bool] = {}
        self.stop_at = 0.0
        self.changes: Changes | None = None

    def do_begin(self, budget: float, tree: str, pids: list[int]) -> dict[str, object]:
        """Begins a round. budget: seconds of CPU time, after which it looks only at new processes and at one more.
        tree: the cgroup whose processes count. pids: all that there are; the others are forgotten."""
        self.stop_at, self.tree, self.goes_on = time.process_time() + budget, tree, True
        for pid in self.known.keys() - set(pids):
            self.forget(pid)
        return {}

    def do_otlp(self, pid: int, begun: int, resource: dict[str, str | int]) -> bytes:
        """Returns the heap profile of a process as a request for a collector; nothing if it takes none."""
        from hakmem.serve.otlp import Changes

        self.changes = self.changes or Changes()
        return self.changes.request(pid, begun, resource)

    def do_end(self) -> dict[str, object]:
        """Returns the CPU seconds of this worker."""
        return {"cpu": time.process_time()}

    def forget(self, pid: int) -> None:
        """Closes what is kept of a process."""
        known = self.known.pop(pid, None)
        if known and known.sampler:
            known.sampler.close()

    def do_look(self, pid: int) -> dict[str, object]:
        """Returns the figures of a process; an empty dictionary if it is none of HAKMEM's or of the tree's, and
        {"later": True} if the round's budget is spent."""
        fields = stat_fields(f"/proc/{pid}/stat")
        if len(fields) < FIELDS or fields[0] in ("Z", "X") or pid == os.getppid():
            self.forget(pid)
            return {}
        begun = int(fields[STARTED])
        try:
            status = os.stat(f"/proc/{pid}/exe")
            place = place_of(os.fsdecode(read_proc(f"/proc/{pid}/cgroup")))
        except PermissionError:
            return UNSEEN
        except OSError:
            return {}  # a kernel thread, or it has ended
        if not within(place.path, self.tree):
            self.forget(pid)
            return {}
        image, known = (status.st_dev, status.st_ino), self.known.get(pid)
        if known and (known.begun, known.image) == (begun, image):
            if known.sampler:
                if not self.goes_on:
                    return {"later": True}
                self.goes_on = time.process_time() < self.stop_at
                return self.looked(known.sampler, place)
            if time.monotonic() < known.search_at:
                return {}
        return self.first_look(pid, begun, image, place)

    def first_look(self, pid: int, begun: int, image: tuple[int, int], place: Place) -> dict[str, object]:
        """Finds out whether a process runs on HAKMEM, and looks at it then."""
        self.forget(pid)
        try:
            found = Sampler(pid) if may_serve(ProcessMemory(pid), self.files) else None
        except NoPermission:
            return UNSEEN
        except LiveError:
            return {}
        age = max(time.clock_gettime(time.CLOCK_BOOTTIME) - begun / TICKS, 0)
        self.known[pid] = Known(begun, image, found, time.monotonic() + min(age, AGAIN_SECONDS))
        return self.looked(found, place) if found else {}

    def looked(self, sampler: Sampler, place: Place) -> dict[str, object]:
        """Returns the figures of a look."""
        try:
            sample = sampler.take()
        except (NoPermission, NoProcess):
            return {}
        except LiveError as error:
            return {"problem": str(error), "place": asdict(place)}
        except (OSError, *UNSOUND) as error:
            return {"problem": f"process {sampler.pid}: it makes no sense ({problem_text(error)})",
                    "place": asdict(place)}
        shot = sample.shot
        return {"place": asdict(place), "begun": sampler.memory.begun, "program": sample.program, "time": shot.time,
                "command": clean(shot.command), "version": shot.version, "totals": vars(shot.totals),
                "counters": shot.counters, "rss": sample.rss, "resident": sample.resident.parts(),
                "minor_faults": sample.minor_faults, "major_faults": sample.major_faults, "took": sample.took,
                "at": sample.at}
