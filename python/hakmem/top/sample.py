"""One look at a process: its heap, its resident memory, its page faults; and what changed between two looks."""

import os
import time
from dataclasses import dataclass

from hakmem.live import ProcessMemory, find, snapshot
from hakmem.live.heap import Snapshot
from hakmem.live.memory import LiveError, NoPermission, NoProcess, Unreadable
from hakmem.top.resident import Resident, measure

# The counters whose rates are shown, and what they are called there.
RATES = {"refills": "refills", "flushes": "flushes", "slabs_carved": "slabs carved", "remote_blocks": "remote frees"}
# The fields of /proc/PID/stat behind the command's closing parenthesis.
MINOR_FAULTS, MAJOR_FAULTS = 7, 9


@dataclass
class Sample:
    """A look at a process."""

    at: float  # monotonic seconds
    took: float  # seconds
    shot: Snapshot
    rss: int  # bytes, as the kernel has it
    resident: Resident
    minor_faults: int
    major_faults: int


class Sampler:
    """Looks at one process, as often as it is asked to."""

    def __init__(self, pid):
        self.pid = pid
        self.memory = ProcessMemory(pid)
        self.descriptor = None
        self.pages = pages_of(pid)

    def close(self):
        os.close(self.pages)

    def take(self):
        """A Sample. NoProcess: it has ended. Any other LiveError may pass, so that taking another is worth it."""
        begun = time.monotonic()
        try:
            self.descriptor = self.descriptor or find(self.memory)
            shot = snapshot(self.memory, self.descriptor)
        except (NoProcess, NoPermission):
            raise
        except LiveError:
            # The process may have become another program, which lies elsewhere.
            self.descriptor = None
            raise
        rss = rss_of(self.memory)
        fields = self.memory.proc_text("stat").rpartition(")")[2].split()
        return Sample(at=begun, took=time.monotonic() - begun, shot=shot, rss=rss,
                      resident=measure(self.pages, shot, rss), minor_faults=int(fields[MINOR_FAULTS]),
                      major_faults=int(fields[MAJOR_FAULTS]))


def pages_of(pid):
    """/proc/PID/pagemap, open: which of its pages are resident."""
    try:
        return os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    except PermissionError:
        from hakmem.live.memory import permission_error
        raise permission_error(pid) from None
    except (FileNotFoundError, ProcessLookupError):
        raise NoProcess(f"process {pid} ended while it was read") from None


def rss_of(memory):
    """The resident bytes, counted by the kernel page by page."""
    for line in memory.proc_text("smaps_rollup").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise Unreadable(f"/proc/{memory.pid}/smaps_rollup has no line Rss")


@dataclass
class Rates:
    """What happened between two samples, a second."""

    seconds: float
    counters: dict[str, float | None]  # by the names in RATES; None: the library does not count it
    minor_faults: float
    major_faults: float
    rss: float  # bytes


def rates(before, after):
    """The Rates between two samples, or None without a first."""
    seconds = after.at - before.at if before else 0
    if seconds <= 0:
        return None
    old, new = before.shot.counters, after.shot.counters
    return Rates(
        seconds=seconds,
        counters={name: (new[name] - old[name]) / seconds if name in old and name in new else None for name in RATES},
        minor_faults=(after.minor_faults - before.minor_faults) / seconds,
        major_faults=(after.major_faults - before.major_faults) / seconds,
        rss=(after.rss - before.rss) / seconds)
