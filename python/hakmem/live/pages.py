"""Which pages are resident: /proc/PID/smaps and /proc/PID/pagemap."""

import mmap
import re
from dataclasses import dataclass

import numpy

from hakmem.live.memory import LiveError, Mapping, parse_mapping

PAGE = mmap.PAGESIZE
PRESENT, FILE, EXCLUSIVE = numpy.uint64(1 << 63), numpy.uint64(1 << 61), numpy.uint64(1 << 56)
HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
# Bytes of the map read at once.
CHUNK = 8 << 20


@dataclass
class Area:
    """A mapping and what of it is resident, by smaps."""

    mapping: Mapping
    rss: int = 0
    swap: int = 0
    huge: int = 0  # of rss: in anonymous huge pages


def read_areas(memory):
    """All mappings, with what smaps says of each."""
    areas, names = [], {"Rss": "rss", "Swap": "swap", "AnonHugePages": "huge"}
    for line in memory.proc_text("smaps").splitlines():
        if HEADER.match(line):
            areas.append(Area(parse_mapping(line)))
            continue
        name, _, value = line.partition(":")
        if name in names:
            setattr(areas[-1], names[name], int(value.split()[0]) * 1024)
    return areas


class Pagemap:
    """The resident pages of a process."""

    def __init__(self, pid):
        try:
            self.file = open(f"/proc/{pid}/pagemap", "rb", buffering=0)
        except OSError as error:
            raise LiveError(f"/proc/{pid}/pagemap: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.file.close()

    def entries(self, start, size):
        """The map's words for the pages of a range; zeros where the map ends."""
        count, parts = size // PAGE, []
        self.file.seek(start // PAGE * 8)
        while count:
            part = self.file.read(min(count * 8, CHUNK))
            if not part:
                parts.append(bytes(count * 8))
                break
            parts.append(part)
            count -= len(part) // 8
        return numpy.frombuffer(b"".join(parts), "<u8")

    def present(self, start, size):
        """Whether each page of a range is there, the page of zeros too; that one counts in no Rss."""
        return (self.entries(start, size) & PRESENT) != 0

    def resident(self, start, size):
        """Whether each page of a range has memory of its own or shared: all but the page of zeros.

        Where a process has forked, its shared pages look like that one; the caller compares with Rss.
        """
        words = self.entries(start, size)
        return ((words & PRESENT) != 0) & ((words & (FILE | EXCLUSIVE)) != 0)
