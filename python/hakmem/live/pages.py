"""Which pages are resident: /proc/PID/smaps and /proc/PID/pagemap."""

import ctypes
import errno
import fcntl
import mmap
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from hakmem.live.memory import LiveError, Mapping, NoProcess, parse_mapping

PAGE = mmap.PAGESIZE
PRESENT, FILE, EXCLUSIVE = numpy.uint64(1 << 63), numpy.uint64(1 << 61), numpy.uint64(1 << 56)
HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
# Bytes of the map read at once.
CHUNK = 8 << 20
# The ioctl that newer kernels have on the map: _IOWR('f', 16, struct pm_scan_arg), and categories of pages.
PAGEMAP_SCAN = 0xC0606610
IS_PRESENT, ZERO, HUGE = 1 << 3, 1 << 5, 1 << 6
REGIONS = 65536
# The vsyscall page lies above, in the kernel's half.
USER_END = 1 << 62
# Flags of mappings: huge pages of hugetlbfs, of which Rss counts none; memory of devices and the kernel.
ODD = frozenset(("ht", "pf", "io", "mm"))


class ScanRequest(ctypes.Structure):
    """struct pm_scan_arg."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "size", "flags", "start", "end", "walk_end", "vector", "vector_length", "max_pages", "category_inverted",
        "category_mask", "category_anyof_mask", "return_mask")]


class Region(ctypes.Structure):
    """struct page_region."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


class PagemapError(LiveError):
    """The kernel does not tell which pages are resident."""


@dataclass
class Area:
    """A mapping and what of it is resident, by smaps."""

    mapping: Mapping
    rss: int = 0
    swap: int = 0
    huge: int = 0  # of rss: in anonymous huge pages
    odd: bool = False  # what the map of pages tells of it is not what Rss counts


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
        elif name == "VmFlags":
            areas[-1].odd = not ODD.isdisjoint(value.split())
    return areas


def read_rss(memory):
    """The sum of Rss of all mappings, at one moment as near as the kernel has it."""
    if not Path(f"/proc/{memory.pid}/smaps_rollup").exists():  # before Linux 4.14
        return sum(area.rss for area in read_areas(memory))
    for line in memory.proc_text("smaps_rollup").splitlines():
        name, _, value = line.partition(":")
        if name == "Rss":
            return int(value.split()[0]) * 1024
    raise NoProcess(f"process {memory.pid} ended while it was read")


@dataclass
class Sweep:
    """The pages that Rss counts, as they were at one look: disjoint ranges by address; which of them lie on huge pages."""

    start: numpy.ndarray
    end: numpy.ndarray
    huge: numpy.ndarray | None  # of each range; None: the kernel does not tell
    sums: numpy.ndarray = field(init=False)  # bytes of all ranges before each, and of all

    def __post_init__(self):
        self.sums = numpy.concatenate([[0], numpy.cumsum(self.end - self.start)])

    @property
    def total(self):
        return int(self.sums[-1])

    def below(self, address):
        """Resident bytes below an address, or each of several."""
        number = numpy.searchsorted(self.start, address, "right")
        before = numpy.maximum(number - 1, 0)
        if not len(self.start):
            return numpy.zeros_like(number)
        inside = numpy.clip(address - self.start[before], 0, self.end[before] - self.start[before])
        return numpy.where(number > 0, self.sums[before] + inside, 0)

    def bytes(self, start, end):
        """Resident bytes from start to end."""
        return int(self.below(end) - self.below(start))

    def count(self, start, size):
        """Whether each page of a range is resident."""
        return self.marked(start, size, numpy.ones(len(self.start), bool))

    def on_huge(self, start, size):
        """Whether each page of a range lies on a huge one; by what is resident whole, where the kernel does not tell."""
        if self.huge is None:
            # Whole SuperSlabs are asked for, whose size is a huge page's.
            return numpy.full(size // PAGE, bool(self.count(start, size).all()))
        return self.marked(start, size, self.huge)

    def marked(self, start, size, chosen):
        """Whether each page of a range lies in one of the chosen ranges."""
        first, last = numpy.searchsorted(self.end, start, "right"), numpy.searchsorted(self.start, start + size)
        edges = numpy.zeros(size // PAGE + 1, "i4")
        chosen = numpy.flatnonzero(chosen[first:last]) + first
        numpy.add.at(edges, (numpy.maximum(self.start[chosen], start) - start) // PAGE, 1)
        numpy.add.at(edges, (numpy.minimum(self.end[chosen], start + size) - start) // PAGE, -1)
        return numpy.cumsum(edges)[:-1] > 0

    def without(self, ranges):
        """The same without some ranges of addresses."""
        start, end, huge = self.start, self.end, self.huge
        for low, high in ranges:
            parts = [(start, numpy.minimum(end, low)), (numpy.maximum(start, high), end)]
            start, end = (numpy.concatenate([part[side] for part in parts]) for side in (0, 1))
            kept = start < end
            huge = None if huge is None else numpy.concatenate([huge, huge])[kept]
            start, end = start[kept], end[kept]
        order = numpy.argsort(start)
        return Sweep(start[order], end[order], None if huge is None else huge[order])


class Pagemap:
    """The resident pages of a process."""

    def __init__(self, pid):
        try:
            self.file = open(f"/proc/{pid}/pagemap", "rb", buffering=0)
        except OSError as error:
            raise PagemapError(f"/proc/{pid}/pagemap: {error.strerror}") from error
        self.regions = (Region * REGIONS)()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.file.close()

    def sweeps(self, mappings):
        """What may be the pages that Rss counts now: the page of zeros is not among them.

        One Sweep; two in older kernels, where the page of zeros looks like one that is shared after a fork.
        """
        # The highest is the first thread's stack.
        mappings = [mapping for mapping in mappings if mapping.end <= USER_END]
        found = self.scan(max(mapping.end for mapping in mappings))
        if found is not None:
            return [Sweep(found["start"].astype("i8"), found["end"].astype("i8"), (found["categories"] & HUGE) != 0)]
        # What is only reserved has no pages, and would be a long read.
        parts = [(mapping.start, self.entries(mapping.start, mapping.size)) for mapping in mappings
                 if not mapping.flags.startswith("---")]
        return [sweep_of([(start, kind(words)) for start, words in parts]) for kind in (present, owned)]

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

    def scan(self, end):
        """The ranges of present pages up to an address, but for the page of zeros; None: the kernel has no PAGEMAP_SCAN."""
        parts, at = [], 0
        while at < end:
            request = ScanRequest(size=ctypes.sizeof(ScanRequest), start=at, end=end,
                                  vector=ctypes.addressof(self.regions), vector_length=REGIONS, category_inverted=ZERO,
                                  category_mask=IS_PRESENT | ZERO, return_mask=IS_PRESENT | HUGE)
            try:
                count = fcntl.ioctl(self.file, PAGEMAP_SCAN, request)
            except OSError as error:
                if error.errno in (errno.ENOTTY, errno.EINVAL):
                    return None
                raise LiveError(f"PAGEMAP_SCAN: {error.strerror}") from error
            parts.append(bytes(memoryview(self.regions).cast("B")[:count * ctypes.sizeof(Region)]))
            if request.walk_end <= at:
                break
            at = request.walk_end
        return numpy.frombuffer(b"".join(parts), [("start", "<u8"), ("end", "<u8"), ("categories", "<u8")])


def present(words):
    """Whether each page is there, the page of zeros too."""
    return (words & PRESENT) != 0


def owned(words):
    """The same without what is neither a file's nor this process's alone."""
    return present(words) & ((words & (FILE | EXCLUSIVE)) != 0)


def sweep_of(parts):
    """The Sweep of (address, whether each page from there on is resident), by address."""
    starts, ends = [], []
    for address, pages in parts:
        edges = numpy.diff(numpy.concatenate([[0], pages.astype("i1"), [0]]))
        starts.append(address + numpy.flatnonzero(edges == 1) * PAGE)
        ends.append(address + numpy.flatnonzero(edges == -1) * PAGE)
    return Sweep(numpy.concatenate(starts).astype("i8"), numpy.concatenate(ends).astype("i8"), None)
