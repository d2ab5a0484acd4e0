"""Reads the sites of a running process's heap profile: the stacks of samples, and the sums of the samples' weights.

A site is never moved or removed, so their list can be followed while the process runs. The sums change meanwhile:
they are read until two reads agree."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hakmem.clean import clean_bytes
from hakmem.compat import zip_strict
from hakmem.live.descriptor import Descriptor, Field, Picker, find
from hakmem.live.heap import Torn, untorn
from hakmem.live.memory import LiveError, MappedMemory, name_of
from hakmem.paths import COMMAND

# Sites that are read at once: they lie next to each other.
BLOCK = 256 << 10
# The most reads of a site that keeps changing; then it counts as last read.
ROUNDS = 8
# The library's table holds far fewer sites, and of each at most 32 sizes (src/profile/table.h).
SITES_MOST, SIZES_MOST = 1 << 20, 1 << 25
NEEDED = ("profile", "site_list", "site", "site_sums")
# src/profile/python.h: a frame of a Python function consists of the highest bit, the function's number and the line.
PYTHON_MARK, LINE_BITS = 1 << 63, 24
# Limits of functions and of the bytes of a name or file. The library keeps 8 MiB of their texts.
FUNCTIONS_MOST, TEXT_MOST = 1 << 20, 1 << 12
PYTHON_NEEDED = ("python_codes.first", "python_codes.count", "python_code.next", "python_code.id",
                 "python_code.first_line",
                 "python_code.name_bytes", "python_code.file_bytes")


Pair = tuple[int, int]
# Limits by src/profile/labels.h: sets of labels, labels of a set, bytes of a set's texts.
SETS_MOST, LABELS_MOST, LABEL_TEXT_MOST = 1 << 16, 1 << 8, 1 << 16


class ProfileOff(LiveError):
    """The process has never taken a heap profile."""


@dataclass(frozen=True)
class Function:
    """A Python function."""

    name: str
    file: str
    first_line: int


@dataclass(frozen=True)
class Label:
    """A label that a thread has set. A number's text is its unit."""

    key: str
    text: str
    number: int | None = None


def python_frame(frame: int) -> tuple[int, int]:
    """Returns (the function's number, the line) of a frame with PYTHON_MARK."""
    return (frame & ~PYTHON_MARK) >> LINE_BITS, frame & (1 << LINE_BITS) - 1


@dataclass
class Size:
    """What blocks of one size have at a site, as Site's sums. size: 0 for any other size."""

    address: int
    size: int
    allocated: tuple[int, int] = (0, 0)
    in_use: tuple[int, int] = (0, 0)
    peak: tuple[int, int] = (0, 0)


@dataclass
class Site:
    """frames: return addresses and Python frames, innermost first. Sums are pairs: blocks and bytes, or blocks and
    milliseconds. Their unit is a fraction: HeapSites.one stands for 1."""

    address: int
    frames: tuple[int, ...]
    allocated: tuple[int, int] = (0, 0)
    in_use: tuple[int, int] = (0, 0)
    lifetimes: tuple[tuple[int, int], ...] = ()
    peak: tuple[int, int] = (0, 0)  # in use when all sites together had most
    labels: tuple[Label, ...] = ()
    label_set: int = 0  # where they are; 0: there are none
    sizes: list[Size] = field(default_factory=list)  # an older HAKMEM has none
    own_freed: tuple[int, ...] = ()  # blocks that their own thread freed, by the allocations that it made meanwhile


@dataclass
class HeapSites:
    """What the profile knows at about one moment."""

    on: bool  # samples are taken now
    generation: int  # rises with each start and stop
    mean: int  # bytes between samples
    started_ns: int  # of the monotonic clock
    by_tables: bool  # stacks are found by unwind tables, not by frame pointers
    one: int
    sites: list[Site]
    functions: dict[int, Function] = field(default_factory=dict)  # of Python, by number
    peak_ms: int | None = None  # when most was in use, by the monotonic clock; None: an older HAKMEM does not tell
    knows_own: bool = False  # the sites have own_freed; an older HAKMEM's have not
    # Bytes in use at the peak: exactly, by samples, and those that were allocated since the profile began. None: an
    # older HAKMEM does not tell.
    peak_bytes: tuple[int, float, int] | None = None
    unseen: int | None = None  # bytes that were in use when the profile began; None: an older HAKMEM does not tell


def read_sites(memory: MappedMemory, descriptor: Descriptor | None = None) -> HeapSites:
    """Returns the HeapSites of the process or core behind `memory`; raises ProfileOff if there is no profile."""
    descriptor = descriptor or find(memory)
    if not all(name in descriptor.types for name in NEEDED):
        raise LiveError(f"{name_of(memory)}: its HAKMEM {descriptor.version} does not say where its heap profile is; "
                        "it is only in the file that HAKMEM_HEAP_PROFILE names")
    return untorn(memory, lambda: Reader(memory, descriptor).read())


class Reader:
    """One attempt at reading the sites."""

    def __init__(self, memory: MappedMemory, descriptor: Descriptor) -> None:
        self.memory, self.descriptor = memory, descriptor
        self.size, self.most = descriptor.types["site"], descriptor.constants["STACK_MOST"]
        self.read_ranges()
        self.knows_peak = "table_peak" in descriptor.roots and {"site.peak", "site.peak_epoch"
                                                                } <= descriptor.fields.keys()
        self.knows_own = self.knows_peak and "site.own_freed" in descriptor.fields
        self.knows_sizes = self.knows_peak and "profile_sizes" in descriptor.roots
        self.knows_labels = "label_sets" in descriptor.roots and "LABEL_IS_NUMBER" in descriptor.constants
        self.block, self.block_at = b"", 0

    def read_ranges(self) -> None:
        """Reads where sites may lie: in private memory without a file."""
        self.ranges = sorted((mapping.start, mapping.end) for mapping in self.memory.mappings()
                             if mapping.flags.startswith("rw-p") and not mapping.inode)
        self.starts = [start for start, _ in self.ranges]

    def read(self) -> HeapSites:
        """Returns the HeapSites."""
        state = self.descriptor.root(self.memory, "profile")
        places = self.descriptor.root(self.memory, "profile_sites", "site_list")
        if not state["started_ns"]:
            raise ProfileOff(
                f"{name_of(self.memory)} takes no heap profile: `{COMMAND} heap --start "
                f"{getattr(self.memory, 'pid', 'PID')}` has it take one, "
                "or start it with HAKMEM_HEAP_PROFILE=FILE "
                f"({COMMAND} run --heap-profile FILE -- PROGRAM), or have it call hak_profile_start")
        if not state["mean"]:
            raise Torn(f"{name_of(self.memory)}: its heap profile makes no sense: samples 0 bytes apart")
        sites = self.walk(places["first"], places["count"])
        self.sizes = self.walk_sizes(sites)
        peak = self.read_with_peak(sites)
        # Read after the sites, because the library stores a function or a label set before a site refers to it.
        self.read_labels(sites)
        made = HeapSites(bool(state["on"]), state["generation"], state["mean"], state["started_ns"],
                         bool(state["by_tables"]), self.descriptor.constants["WEIGHT_ONE"], sites,
                         self.read_functions(), peak.get("at_ms"), self.knows_own, unseen=peak.get("unseen"))
        if "least" in peak:
            made.peak_bytes = peak["bytes"], peak["sampled"] / made.one, peak["least"]
        return made

    def damaged(self, what: str) -> Torn:
        """Returns the error for a list that makes no sense."""
        return Torn(f"{name_of(self.memory)}: the heap profile's list of sites {what}")

    # ---- The list ----

    def walk(self, address: int, count: int) -> list[Site]:
        """Returns the first `count` sites of the list, which only grows."""
        if count > SITES_MOST or count * self.size > sum(end - start for start, end in self.ranges):
            raise self.damaged(f"is said to be {count:,} long, for which there is no room")
        sites: list[Site] = []
        seen: set[int] = set()
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
            sites.append(
                Site(address, tuple(array("Q", frames)), label_set=fields["labels"] if self.knows_labels else 0))
            address = fields["next"]
        return sites

    def walk_sizes(self, sites: list[Site]) -> list[Size]:
        """Returns the sizes of all sites, and puts each at its site. Older HAKMEMs have none."""
        if not self.knows_sizes:
            return []
        by_address = {site.address: site for site in sites}
        places = self.descriptor.root(self.memory, "profile_sizes", "site_size_list")
        each = self.descriptor.types["site_size"]
        found: list[Size] = []
        address = places["first"]
        if places["count"] > SIZES_MOST or places["count"] * each > sum(end - start for start, end in self.ranges):
            raise self.damaged(f"is said to have {places['count']:,} sizes, for which there is no room")
        for _ in range(places["count"]):
            if not address:
                raise self.damaged(f"has {len(found):,} sizes, of {places['count']:,}")
            fields = self.descriptor.unpack("site_size", self.bytes_at(address, each))
            site = by_address.get(fields["site"])
            if site is not None:  # else it was made after the list of sites was read
                found.append(Size(address, fields["size"]))
                site.sizes.append(found[-1])
            address = fields["next"]
        return found

    def bytes_at(self, address: int, size: int) -> bytes:
        """Returns bytes of one mapping, from the block that was read last if it holds them."""
        at = address - self.block_at
        if at < 0 or at + size > len(self.block):
            end = self.range_end(address)
            if address + size > end and not address % 8:
                self.read_ranges()  # the tables may have grown since
                end = self.range_end(address)
            if address % 8 or address + size > end:
                raise self.damaged(f"leads to {address:#x}, where no site can be")
            self.block = self.memory.read(address, max(size, min(BLOCK, end - address)))
            self.block_at, at = address, 0
        return self.block[at:at + size]

    def range_end(self, address: int) -> int:
        """Returns the end of the range that holds the address, or 0."""
        number = bisect_right(self.starts, address) - 1
        return self.ranges[number][1] if number >= 0 else 0

    # ---- Labels ----

    def read_labels(self, sites: list[Site]) -> None:
        """Fills in the sites' labels. Older HAKMEMs have none."""
        if not self.knows_labels or not any(site.label_set for site in sites):
            return
        places, size = self.descriptor.root(self.memory, "label_sets"), self.descriptor.types["label_set"]
        address, count, found = places["first"], places["count"], {}
        if count > SETS_MOST:
            raise self.damaged(f"names {count:,} sets of labels")
        for _ in range(count):
            if not address:
                break
            fields = self.descriptor.unpack("label_set", self.bytes_at(address, size))
            if fields["count"] > LABELS_MOST or fields["text_bytes"] > LABEL_TEXT_MOST:
                raise self.damaged(f"leads to a set of {fields['count']:,} labels with {fields['text_bytes']:,} bytes "
                                   f"at {address:#x}")
            found[address] = self.read_set(address + size, fields["count"], fields["text_bytes"])
            address = fields["next"]
        for site in sites:
            if site.label_set and site.label_set not in found:
                raise self.damaged(f"leads to labels at {site.label_set:#x}, where none are")
            site.labels = found.get(site.label_set, ())

    def read_set(self, address: int, count: int, text_bytes: int) -> tuple[Label, ...]:
        """Returns the labels of a set. Their texts lie behind the items."""
        picker, size = self.descriptor.picker("label_item"), self.descriptor.types["label_item"]
        data = self.bytes_at(address, count * size + text_bytes)
        texts, labels = data[count * size:], []
        for row in picker.rows(data[:count * size]):
            item = dict(zip_strict(picker.names, row))
            middle = item["text"] + item["key_bytes"]
            if middle + item["value_bytes"] > text_bytes:
                raise self.damaged(f"leads to a label whose text ends behind its set at {address:#x}")
            is_number = item["kind"] == self.descriptor.constants["LABEL_IS_NUMBER"]
            labels.append(
                Label(clean_bytes(texts[item["text"]:middle]), clean_bytes(texts[middle:middle + item["value_bytes"]]),
                      item["number"] - (item["number"] >> 63 << 64) if is_number else None))
        return tuple(labels)

    # ---- Functions of Python ----

    def read_functions(self) -> dict[int, Function]:
        """Returns {number: Function} of Python functions. Older HAKMEMs have none."""
        if not all(name in self.descriptor.fields
                   for name in PYTHON_NEEDED) or "python_codes" not in self.descriptor.roots:
            return {}
        places = self.descriptor.root(self.memory, "python_codes")
        address, count, size = places["first"], places["count"], self.descriptor.types["python_code"]
        if count > FUNCTIONS_MOST:
            raise self.damaged(f"names {count:,} functions of Python")
        found = {}
        for _ in range(count):
            if not address:
                break
            fields = self.descriptor.unpack("python_code", self.bytes_at(address, size))
            lengths = fields["name_bytes"], fields["file_bytes"]
            if max(lengths) > TEXT_MOST:
                raise self.damaged(f"leads to a function of Python with a name of {max(lengths):,} bytes at "
                                   f"{address:#x}")
            text = self.bytes_at(address + size, sum(lengths))
            found[fields["id"]] = Function(clean_bytes(text[:lengths[0]]), clean_bytes(text[lengths[0]:]),
                                           fields["first_line"])
            address = fields["next"]
        return found

    # ---- The sums ----

    def read_with_peak(self, sites: list[Site]) -> dict[str, int]:
        """Fills in the sums and returns what is known of the peak. Reads again while the peak rises."""
        if not self.knows_peak:
            self.read_sums(sites)
            return {}
        for _ in range(ROUNDS):
            peak = self.descriptor.root(self.memory, "table_peak")
            self.read_sums(sites, peak["epoch"])
            if self.descriptor.root(self.memory, "table_peak")["epoch"] == peak["epoch"]:
                break
        return peak

    def read_sums(self, sites: list[Site], epoch: int = 0) -> None:
        """Fills in the sums. A site that has not changed since the peak had its present sums then (R6 in
        src/profile/table.h)."""
        own = len(self.offsets("site.own_freed")) if self.knows_own else 0
        more = [at + self.descriptor.fields[f"site_sums.{name}"].offset for at in self.offsets("site.lifetimes")
                for name in ("objects", "bytes")] + (self.offsets("site.own_freed") if own else [])
        for site, (allocated, in_use, peak, rest) in zip_strict(sites, self.settled("site", sites, more, epoch)):
            site.allocated, site.in_use, site.peak = allocated, in_use, peak
            lives = rest[:len(rest) - own]
            site.lifetimes, site.own_freed = tuple(zip_strict(lives[::2], lives[1::2])), rest[len(rest) - own:]
        for size, (allocated, in_use, peak, _) in zip_strict(self.sizes,
                                                             self.settled("site_size", self.sizes, [], epoch)):
            size.allocated, size.in_use, size.peak = allocated, in_use, peak

    def offsets(self, name: str) -> list[int]:
        """Returns the offset of each element of an array."""
        array_field = self.descriptor.fields[name]
        return [array_field.offset + number * array_field.size for number in range(array_field.count)]

    def settled(self, kind: str, whose: Sequence[Site | Size], more: list[int],
                epoch: int) -> Iterator[tuple[Pair, Pair, Pair, tuple[int, ...]]]:
        """Yields for each struct of the kind the sums allocated, in use and at the peak, and the numbers at the
        offsets `more`. Reads again while they change."""
        numbers = self.sums_of(kind, whose, more)
        waiting = list(range(len(whose)))
        for _ in range(ROUNDS):
            again = self.sums_of(kind, [whose[number] for number in waiting], more)
            moving = []
            for number, row in zip_strict(waiting, again):
                if row != numbers[number] or not makes_sense(row):
                    moving.append(number)
                numbers[number] = row
            waiting = moving
            if not waiting:
                break
        for one, row in zip_strict(whose, numbers):
            if not makes_sense(row):
                raise self.damaged(f"has more in use than was allocated at {one.address:#x}")
            sums = row[:-3] if self.knows_peak else row
            allocated, in_use = (sums[0], sums[1]), (sums[2], sums[3])
            peak = (0, 0) if not self.knows_peak else (row[-3], row[-2]) if row[-1] == epoch else in_use
            yield allocated, in_use, peak, sums[4:]

    def sums_of(self, kind: str, whose: Sequence[Site | Size], more: list[int]) -> list[tuple[int, ...]]:
        """Returns a row for each struct of the kind: blocks and bytes allocated, in use, then the numbers at the
        offsets `more`, then blocks and bytes at the peak, and the peak's epoch."""
        fields, each = self.descriptor.fields, self.descriptor.types[kind]
        starts = [fields[f"{kind}.{name}"].offset for name in ("allocated", "in_use")]
        places = [(f"{start} {name}", start + fields[f"site_sums.{name}"].offset)
                  for start in starts for name in ("objects", "bytes")] + [(f"more {at}", at) for at in more]
        if self.knows_peak:
            peak = fields[f"{kind}.peak"].offset
            places += [(f"peak {name}", peak + fields[f"site_sums.{name}"].offset) for name in ("objects", "bytes")]
            places.append(("epoch", fields[f"{kind}.peak_epoch"].offset))
        picker = Picker(each, {name: Field(offset, 8, 1) for name, offset in places})
        return list(picker.rows(b"".join(self.memory.read_many([(one.address, each) for one in whose]))))


def makes_sense(row: tuple[int, ...]) -> bool:
    """Returns whether no more is in use than was allocated."""
    return row[2] <= row[0] and row[3] <= row[1]
