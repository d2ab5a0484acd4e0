"""The heap profile's sites of a running process: stacks that samples were taken at, and the sums of their weights.

A site is never moved or removed, so their list is followed while the process runs. Its sums change meanwhile: they are
read until two reads agree.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy

from hakmem.live.descriptor import find, name_of
from hakmem.live.heap import Torn, untorn
from hakmem.live.memory import LiveError

# Sites lie one behind another, so that they are read many at once.
BLOCK = 256 << 10
# After so many reads a site that changes all the time is taken as it was last.
ROUNDS = 8
NEEDED = ("profile", "site_list", "site", "site_sums")


class ProfileOff(LiveError):
    """The process has never taken a heap profile."""


@dataclass
class Site:
    """frames: return addresses, innermost first. The sums are pairs of blocks and bytes, or of blocks and milliseconds,
    in parts: HeapSites.one is a whole."""

    address: int
    frames: tuple[int, ...]
    allocated: tuple[int, int] = (0, 0)
    in_use: tuple[int, int] = (0, 0)
    lifetimes: tuple[tuple[int, int], ...] = ()


@dataclass
class HeapSites:
    """What the profile knows at one moment, nearly."""

    on: bool  # samples are taken now
    generation: int  # number of starts and stops
    mean: int  # bytes between samples
    started_ns: int  # of the monotonic clock
    by_tables: bool  # stacks are found by unwind tables, not by frame pointers
    one: int
    sites: list[Site]


def read_sites(memory, descriptor=None):
    """The HeapSites of what runs behind `memory`. ProfileOff: there is no profile."""
    descriptor = descriptor or find(memory)
    if not all(name in descriptor.types for name in NEEDED):
        raise LiveError(f"{name_of(memory)}: its HAKMEM {descriptor.version} does not say where its heap profile is; "
                        "it is only in the file that HAKMEM_HEAP_PROFILE names")
    return untorn(lambda: Reader(memory, descriptor).read())


class Reader:
    """One attempt."""

    def __init__(self, memory, descriptor):
        self.memory, self.descriptor = memory, descriptor
        self.size, self.most = descriptor.types["site"], descriptor.constants["STACK_MOST"]
        # Sites lie in private memory without a file.
        self.ranges = sorted((mapping.start, mapping.end) for mapping in memory.mappings()
                             if mapping.flags.startswith("rw-p") and not mapping.inode)
        self.starts = [start for start, _ in self.ranges]
        self.block, self.block_at = b"", 0

    def read(self):
        state, places = self.root("profile", "profile"), self.root("profile_sites", "site_list")
        if not state["started_ns"]:
            raise ProfileOff(
                f"{name_of(self.memory)} takes no heap profile: start it with HAKMEM_HEAP_PROFILE=FILE "
                "(./hakmem run --heap-profile FILE -- PROGRAM), or have it call hak_profile_start")
        if not state["mean"]:
            raise Torn(f"{name_of(self.memory)}: its heap profile makes no sense: samples 0 bytes apart")
        sites = self.walk(places["first"], places["count"])
        self.read_sums(sites)
        return HeapSites(bool(state["on"]), state["generation"], state["mean"], state["started_ns"],
                         bool(state["by_tables"]), self.descriptor.constants["WEIGHT_ONE"], sites)

    def root(self, name, kind):
        return self.descriptor.unpack(kind, self.memory.read(self.descriptor.roots[name], self.descriptor.types[kind]))

    def damaged(self, what):
        return Torn(f"{name_of(self.memory)}: the heap profile's list of sites {what}")

    # ---- The list ----

    def walk(self, address, count):
        """The first `count` sites of the list, which only grows."""
        if count * self.size > sum(end - start for start, end in self.ranges):
            raise self.damaged(f"is said to be {count:,} long, for which there is no room")
        sites, seen = [], set()
        while len(sites) < count:
            if not address:
                raise self.damaged(f"ends after {len(sites):,} of {count:,}")
            if address in seen:
                raise self.damaged(f"leads back to {address:#x}")
            seen.add(address)
            fields = self.descriptor.unpack("site", self.bytes_at(address, self.size))
            if fields["frame_count"] > self.most:
                raise self.damaged(f"has {fields['frame_count']:,} frames at {address:#x}, {self.most} at most may be")
            frames = self.bytes_at(address + self.size, fields["frame_count"] * 8)
            sites.append(Site(address, tuple(numpy.frombuffer(frames, "<u8").tolist())))
            address = fields["next"]
        return sites

    def bytes_at(self, address, size):
        """Bytes of one mapping, out of the block that was read last if it has them."""
        at = address - self.block_at
        if at < 0 or at + size > len(self.block):
            number = bisect_right(self.starts, address) - 1
            if number < 0 or address % 8 or address + size > self.ranges[number][1]:
                raise self.damaged(f"leads to {address:#x}, where no site can be")
            self.block = self.memory.read(address, max(size, min(BLOCK, self.ranges[number][1] - address)))
            self.block_at, at = address, 0
        return self.block[at:at + size]

    # ---- The sums ----

    def read_sums(self, sites):
        """Fills in the sums."""
        numbers = self.sums_of(sites)
        waiting = numpy.arange(len(sites))
        for _ in range(ROUNDS):
            again = self.sums_of([sites[number] for number in waiting])
            settled = (again == numbers[waiting]).all(axis=1) & makes_sense(again)
            numbers[waiting] = again
            waiting = waiting[~settled]
            if not len(waiting):
                break
        wrong = numpy.flatnonzero(~makes_sense(numbers))
        if len(wrong):
            raise self.damaged(f"has more in use than was allocated at {sites[wrong[0]].address:#x}")
        for site, row in zip(sites, numbers.tolist(), strict=True):
            pairs = list(zip(row[::2], row[1::2], strict=True))
            site.allocated, site.in_use, site.lifetimes = pairs[0], pairs[1], tuple(pairs[2:])

    def sums_of(self, sites):
        """A row a site: blocks and bytes allocated, in use, and of each bucket of lifetimes."""
        fields = self.descriptor.fields
        lives = fields["site.lifetimes"]
        starts = [fields["site.allocated"].offset, fields["site.in_use"].offset,
                  *(lives.offset + number * lives.size for number in range(lives.count))]
        offsets = [start + fields[f"site_sums.{name}"].offset for start in starts for name in ("objects", "bytes")]
        data = b"".join(self.memory.read_many([(site.address, self.size) for site in sites]))
        words = numpy.frombuffer(data, "<u8").reshape(len(sites), self.size // 8)
        return words[:, [offset // 8 for offset in offsets]].copy()


def makes_sense(numbers):
    """Of each row: what is in use was allocated."""
    return (numbers[:, 2] <= numbers[:, 0]) & (numbers[:, 3] <= numbers[:, 1])
