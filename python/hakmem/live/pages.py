"""Which pages are resident: /proc/PID/smaps and /proc/PID/pagemap."""

import ctypes
import errno
import fcntl
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
# The ioctl that newer kernels have on the map: _IOWR('f', 16, struct pm_scan_arg), and categories of pages.
PAGEMAP_SCAN = 0xC0606610
IS_PRESENT, ZERO, HUGE = 1 << 3, 1 << 5, 1 << 6
REGIONS = 512


class ScanRequest(ctypes.Structure):
    """struct pm_scan_arg."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "size", "flags", "start", "end", "walk_end", "vector", "vector_length", "max_pages", "category_inverted",
        "category_mask", "category_anyof_mask", "return_mask")]


class Region(ctypes.Structure):
    """struct page_region."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


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

    def counter(self, areas):
        """A function of (start, size): whether each page is resident, the page of zeros not, as Rss counts."""
        if self.scan(0, PAGE, 0) is not None:
            return lambda start, size: self.present(start, size) & ~self.scan(start, size, ZERO)
        # In older kernels the page of zeros looks like one that is shared after a fork: what fits Rss better is taken.
        rss = sum(area.rss for area in areas)

        def misses(count):
            return abs(sum(int(count(area.mapping.start, area.mapping.size).sum()) for area in areas if area.rss) * PAGE - rss)
        return min((self.present, self.owned), key=misses)

    def present(self, start, size):
        """Whether each page of a range is there, the page of zeros too."""
        return (self.entries(start, size) & PRESENT) != 0

    def owned(self, start, size):
        """The same without what is neither a file's nor this process's alone."""
        words = self.entries(start, size)
        return ((words & PRESENT) != 0) & ((words & (FILE | EXCLUSIVE)) != 0)

    def huge(self, start, size):
        """Whether each page of a range lies on a huge one; by what is resident whole, where the kernel does not tell."""
        found = self.scan(start, size, HUGE)
        if found is None:
            # Whole SuperSlabs are asked for, whose size is a huge page's.
            found = numpy.full(size // PAGE, bool(self.present(start, size).all()))
        return found

    def scan(self, start, size, category):
        """Whether each page of a range is present and of the category; None where the kernel has no PAGEMAP_SCAN."""
        found, regions, at = numpy.zeros(size // PAGE, bool), (Region * REGIONS)(), start
        while at < start + size:
            request = ScanRequest(size=ctypes.sizeof(ScanRequest), start=at, end=start + size,
                                  vector=ctypes.addressof(regions), vector_length=REGIONS,
                                  category_mask=IS_PRESENT | category, return_mask=IS_PRESENT | category)
            try:
                count = fcntl.ioctl(self.file, PAGEMAP_SCAN, request)
            except OSError as error:
                if error.errno in (errno.ENOTTY, errno.EINVAL):
                    return None
                raise LiveError(f"PAGEMAP_SCAN: {error.strerror}") from error
            for region in regions[:count]:
                found[(region.start - start) // PAGE:(region.end - start) // PAGE] = True
            if request.walk_end <= at:
                break
            at = request.walk_end
        return found
