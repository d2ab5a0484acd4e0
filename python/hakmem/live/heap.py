"""A snapshot of the heap of a process that goes on running.

Few large reads; what they bring is checked before it is believed: a pointer is followed only where HAKMEM keeps such records, a
list is followed no further than it can be long, a slab is counted only if its header makes sense. What was caught in the
middle of a change is read again.
"""

import os
import time
from dataclasses import asdict

import numpy

from hakmem.live.descriptor import find
from hakmem.live.huge import read_huge
from hakmem.live.kinds_of_blocks import SMALL_MOST, block_pools
from hakmem.live.memory import LiveError, Unreadable
from hakmem.live.model import (
    ACTIVE, BETWEEN, DIRTY, TIERS, UNTOUCHED, WARM, Pool, SizeClass, Snapshot, Thread, Totals, Units)

TRIES = 5
# SuperSlab headers read at once.
HEADERS = 64
# Mappings of the heap profile's tables, far more than there are.
PROFILE_MAPS = 1 << 16
PAGE = 4096
# Options whose value is the address of a text, and more bytes than the library keeps of one.
TEXT_OPTIONS = ("stats_file", "heap_profile", "heap_profile_signal", "heap_profile_unwind")
TEXT_MOST = 1 << 16
# Heaps that may be made while the list is read.
NEW_HEAPS = 4096
ALL_FREE = 0xFFFFFFFE
# Counters of classes that no heap has the sum of.
EVERYWHERE = ("malloc_hits", "free_hits", "overflows", "direct", "returned_blocks")
SLAB = ("owner", "used", "blocks", "class", "units", "state", "remote_count")


class Torn(LiveError):
    """Something changed while it was read, in a way that makes no sense."""


def untorn(attempt):
    """What attempt() returns, made again a few times where what it read changed meanwhile."""
    for left in reversed(range(TRIES)):
        try:
            return attempt()
        except (Torn, Unreadable):
            if left == 0:
                raise
    raise AssertionError("unreachable")


def snapshot(memory, descriptor=None):
    """The Snapshot of what runs behind `memory`."""
    descriptor = descriptor or find(memory)
    return untorn(lambda: Reader(memory, descriptor).snapshot())


class Reader:
    """One attempt at a snapshot."""

    def __init__(self, memory, descriptor):
        self.memory = memory
        self.descriptor = descriptor
        self.constant = descriptor.constants
        self.unit_size = self.constant["UNIT_SIZE"]
        self.superslab_size = self.constant["SUPERSLAB_SIZE"]
        self.units = self.constant["SUPERSLAB_UNITS"]
        self.class_count = self.constant["CLASS_COUNT"]

    def snapshot(self):
        self.begun = time.time()
        self.read_roots()
        self.read_slots()
        self.read_heaps()
        self.read_headers()
        self.read_caches()
        self.read_profile()
        huge = read_huge(self.memory, self.descriptor, {heap["address"]: heap["id"] for heap in self.heaps})
        return self.made(huge)

    # ---- Reading ----

    def read_roots(self):
        types, roots = self.descriptor.types, self.descriptor.roots
        parts = self.memory.read_many([
            (roots["hak_window"], 8), (roots["hak_units"], 8), (roots["shared_pool"], types["shared_pool"]),
            (roots["registry"], types["registry"]), (roots["size_classes"], self.class_count * types["size_class"]),
            (roots["hak_options"], types["options"]), (roots.get("window_head_mapped", roots["hak_units"]), 8)])
        self.window, self.window_units = (int.from_bytes(part, "little") for part in parts[:2])
        self.pool = self.descriptor.unpack("shared_pool", parts[2])
        self.registry = self.descriptor.unpack("registry", parts[3])
        departed = self.descriptor.fields["registry.departed"]
        self.departed = parts[3][departed.offset:departed.offset + departed.size]
        self.classes = numpy.frombuffer(parts[4], self.descriptor.dtype("size_class")).astype(
            [(name, "i8") for name in self.descriptor.numbers_of("size_class")])
        self.options = {name: self.text_at(value) if name in TEXT_OPTIONS else value
                        for name, value in self.descriptor.unpack("options", parts[5]).items()}
        self.head_mapped = int.from_bytes(parts[6], "little") if "window_head_mapped" in roots else None

    def text_at(self, address):
        """The text of an option that is no number; None where it is not set. The library keeps it until the process ends."""
        text = b""
        while address and b"\0" not in text and len(text) < TEXT_MOST:
            # Not over the end of a page: the next may be unmapped.
            text += self.memory.read(address + len(text), PAGE - (address + len(text)) % PAGE)
        return os.fsdecode(text.partition(b"\0")[0]) if address else None

    def read_slots(self):
        """The descriptors of the window's slots, those that were ever mapped."""
        self.committed = self.window_units // self.units
        size = self.descriptor.types["slot"]
        data = self.memory.read(self.pool["slots"], self.committed * size) if self.committed else b""
        self.slots = numpy.frombuffer(data, self.descriptor.dtype("slot"))
        # Slots are handed out in order, so the first in use is the first behind the window's head.
        used = numpy.flatnonzero(self.slots["kind"])
        self.begin = int(used[0]) if len(used) else self.committed
        self.rows = numpy.flatnonzero(self.slots["kind"] == self.constant["SLOT_SUPERSLAB"])
        # Behind this one they are not mapped now.
        self.end = min(self.pool["slots_committed"], self.committed)
        self.foreign = numpy.flatnonzero(self.slots["kind"] == self.constant.get("SLOT_FOREIGN", -1))
        self.foreign = self.foreign[self.foreign < self.end]
        self.head_maps = self.maps_of_head()

    def maps_of_head(self):
        """What is mapped of the window's head; all of it where HAKMEM reserves its window."""
        if not self.committed:
            return []
        if self.head_mapped is None:
            return [(self.window, self.begin * self.superslab_size)]
        return [(self.window, self.constant["WINDOW_PAGE_MAP"] + self.head_mapped), (self.pool["slots"], self.head_mapped)]

    def in_metadata(self, address):
        """Whether an address lies in a slot that holds records."""
        number, outside = divmod(address - self.window, self.superslab_size)
        return (0 <= number < self.committed and outside % 8 == 0
                and self.slots["kind"][number] == self.constant["SLOT_METADATA"])

    def read_heaps(self):
        """All heaps: a list that only grows, at its head."""
        size, most = self.descriptor.types["heap"], self.registry["count"] + NEW_HEAPS
        self.heaps, seen, address = [], set(), self.registry["heaps"]
        while address:
            if address in seen or len(seen) >= most or not self.in_metadata(address):
                raise Torn(f"the list of heaps leads to {address:#x}")
            seen.add(address)
            data = self.memory.read(address, size)
            heap = self.descriptor.unpack("heap", data)
            heap["address"] = address
            self.heaps.append(heap)
            address = heap["next"]
        self.read_bodies()

    def read_bodies(self):
        """What each heap has beside its struct; zeros where that memory was given back. The counters went to the departed's."""
        size, purged = self.descriptor.types["heap_body"], self.constant["MEMORY_PURGED"]
        there = [heap for heap in self.heaps if heap["body_purged"] != purged]
        for heap in there:
            if not self.in_metadata(heap["body"]):
                raise Torn(f"the body of heap {heap['id']} is at {heap['body']:#x}")
        bodies = self.memory.read_many([(heap["body"], size) for heap in there])
        for heap in self.heaps:
            heap["data"] = bytes(size)
        for heap, data in zip(there, bodies, strict=True):
            heap["data"] = data
        now = self.descriptor.unpack("registry", self.memory.read(
            self.descriptor.roots["registry"], self.descriptor.types["registry"]))
        if now["folds"] != self.registry["folds"]:
            raise Torn("heaps ended while their counters were read")

    def read_headers(self):
        """The slabs of all SuperSlabs that have any: rows by SuperSlab, columns by unit."""
        shape = (len(self.rows), self.units)
        self.state, self.class_id, self.used, self.owner, self.length = (
            numpy.zeros(shape, kind) for kind in ("u1", "u1", "i8", "u8", "i8"))
        wanted = numpy.flatnonzero((self.slots["free"][self.rows] != ALL_FREE)
                                   & (self.slots["decommitted"][self.rows] == 0))
        place = self.descriptor.fields["superslab.slabs"]
        kind = self.descriptor.dtype("slab", *SLAB)
        for first in range(0, len(wanted), HEADERS):
            rows = wanted[first:first + HEADERS]
            parts = self.memory.read_many([
                (self.window + int(self.rows[row]) * self.superslab_size + place.offset, place.size * place.count)
                for row in rows])
            slabs = numpy.frombuffer(b"".join(parts), kind).reshape(len(rows), place.count)
            self.state[rows] = slabs["state"]
            self.class_id[rows] = slabs["class"]
            self.used[rows] = slabs["used"].astype("i8") - numpy.minimum(slabs["used"], slabs["remote_count"])
            self.owner[rows] = slabs["owner"]
            self.length[rows] = slabs["units"]
        self.check_slabs()

    def check_slabs(self):
        """Keeps the slabs whose headers make sense; finds the first unit of each unit's slab."""
        active = self.state == self.constant["SLAB_ACTIVE"]
        warm = self.state == self.constant["SLAB_WARM"]
        known = (self.class_id > 0) & (self.class_id < self.class_count)
        self.class_id = numpy.where(known, self.class_id, 0)
        column = numpy.arange(self.units)
        fits = (self.length > 0) & (column + self.length <= self.units) & (column > 0)
        active &= known & fits & (self.length == self.classes["units"][self.class_id])
        warm &= fits
        self.first = numpy.zeros(self.state.shape, "u1")
        self.kind = numpy.zeros(self.state.shape, "u1")
        end, first, kind = (numpy.zeros(len(self.rows), "i8") for _ in range(3))
        for unit in range(1, self.units):
            free = end <= unit
            active[:, unit] &= free
            warm[:, unit] &= free
            begins = active[:, unit] | warm[:, unit]
            end = numpy.where(begins, unit + self.length[:, unit], end)
            first = numpy.where(begins, unit, first)
            kind = numpy.where(begins, numpy.where(active[:, unit], ACTIVE, WARM), kind)
            inside = end > unit
            self.first[:, unit] = numpy.where(inside & (kind == ACTIVE), first, 0)
            self.kind[:, unit] = numpy.where(inside, kind, 0)
        self.active = active
        for name in ("class_id", "used", "owner"):
            setattr(self, name, numpy.where(active, getattr(self, name), 0))
        self.used = numpy.minimum(self.used, self.classes["blocks"][self.class_id])
        # What is in no slab: free and dirty, free and untouched, or on its way between two states.
        bits = 1 << column.astype("u8")
        free = (self.slots["free"][self.rows].astype("u8")[:, None] & bits) != 0
        touched = (self.slots["touched"][self.rows].astype("u8")[:, None] & bits) != 0
        self.kind = numpy.where(self.kind != 0, self.kind,
                                numpy.where(free, numpy.where(touched, DIRTY, UNTOUCHED), BETWEEN)).astype("u1")

    def read_caches(self):
        """The blocks in thread caches: how many each slab has there, and how many bytes each heap's thread holds."""
        fields, thread = self.descriptor.fields, self.constant["HEAP_THREAD"]
        owners = [heap for heap in self.heaps if heap["kind"] == thread and not heap["cache_purged"]
                  and heap["cache"] and self.in_metadata(heap["cache"])]
        bins, slots = fields["thread_cache.bins"], fields["thread_cache.slots"]
        base, limit = self.classes["slot_base"], self.classes["slot_limit"]
        tops = self.memory.read_many([(heap["cache"] + bins.offset, bins.size * bins.count) for heap in owners])
        top = numpy.frombuffer(b"".join(tops), self.descriptor.dtype("bin"))["top"].reshape(len(owners), bins.count)
        count = top[:, :self.class_count].astype("i8") - base
        # A cache that was never made a thread's reads as zeros.
        owner, class_id = numpy.nonzero((count > 0) & (count <= limit))
        counts = count[owner, class_id]
        caches = numpy.array([heap["cache"] for heap in owners], "i8")
        starts = caches[owner] + slots.offset + (base[class_id] + 1) * slots.size
        wanted = list(zip(starts.tolist(), (counts * slots.size).tolist(), strict=True))
        self.cached = numpy.zeros(self.state.shape, "i8")
        self.cached_by = dict.fromkeys((heap["address"] for heap in owners), 0)
        self.cached_blocks, self.cached_ids = numpy.zeros(0, "u8"), numpy.zeros(0, "i8")
        if not wanted:
            return
        blocks = numpy.frombuffer(b"".join(self.memory.read_many(wanted)), "<u8")
        owner, class_id = numpy.repeat(owner, counts), numpy.repeat(class_id, counts)
        row_of = numpy.full(self.committed, -1)
        row_of[self.rows] = numpy.arange(len(self.rows))
        number = (blocks - numpy.uint64(self.window)) // numpy.uint64(self.superslab_size)
        inside = number < self.committed
        row = numpy.where(inside, row_of[numpy.where(inside, number, 0).astype("i8")], -1)
        unit = (blocks // numpy.uint64(self.unit_size)).astype("i8") % self.units
        first = self.first[row, unit]
        valid = (row >= 0) & (first > 0) & (self.class_id[row, first] == class_id)
        numpy.add.at(self.cached, (row[valid], first[valid]), 1)
        self.cached = numpy.minimum(self.cached, self.used)
        self.cached_blocks = blocks[valid]
        self.cached_ids = numpy.array([heap["id"] for heap in owners])[owner[valid]]
        held = numpy.bincount(owner[valid], self.classes["size"][class_id[valid]], len(owners))
        self.cached_by = {heap["address"]: int(held[number]) for number, heap in enumerate(owners)}

    def read_profile(self):
        """The mappings of the heap profile's tables, (address, bytes); none in a HAKMEM that does not tell."""
        self.profile = []
        if "table_memory" not in self.descriptor.roots:
            return
        memory = self.descriptor.unpack("table_memory", self.memory.read(
            self.descriptor.roots["table_memory"], self.descriptor.types["table_memory"]))
        address, seen = memory["maps"], set()
        while address:
            if address % PAGE or address in seen or len(seen) >= PROFILE_MAPS:
                raise Torn(f"the list of the heap profile's mappings leads to {address:#x}")
            seen.add(address)
            row = self.descriptor.unpack("table_map", self.memory.read(address, self.descriptor.types["table_map"]))
            self.profile.append((address, row["bytes"]))
            address = row["next"]
        if sum(size for _, size in self.profile) != memory["bytes"]:
            raise Torn("the heap profile's mappings changed")

    # ---- Putting together ----

    def made(self, huge):
        ids = {heap["address"]: heap["id"] for heap in self.heaps}
        named = getattr(self.memory, "command", None)
        known, place = numpy.unique(self.owner, return_inverse=True)
        owner = numpy.array([ids.get(int(address), 0) for address in known], "i8")[place].reshape(self.owner.shape)
        slots = self.slots[self.rows]
        units = Units(
            number=self.rows, address=self.window + self.rows * self.superslab_size, tier=self.tiers(slots),
            huge_pages=slots["huge_pages"] == self.constant["PAGES_HUGE"], decommitted=slots["decommitted"] != 0,
            state=self.kind, first=self.first, class_id=self.class_id, used=self.used, cached=self.cached, owner=owner)
        threads = self.threads(owner)
        counters = self.class_counters()
        classes = self.size_classes(counters)
        metadata = numpy.flatnonzero(self.slots["kind"] == self.constant["SLOT_METADATA"])
        return Snapshot(
            time=self.begun, pid=getattr(self.memory, "pid", None), command=named() if named else "",
            version=self.descriptor.version, totals=self.totals(huge, units), classes=classes,
            threads=threads, pools=self.pools(units), huge=huge.blocks,
            counters=summed(threads, self.departed_counters()) | {name: int(counters[name].sum()) for name in counters if name in EVERYWHERE}, options=self.options,
            block_sizes=self.classes["size"].tolist(), class_blocks=self.classes["blocks"].tolist(), units=units,
            head=(self.window, self.begin * self.superslab_size if self.committed else 0),
            profile_maps=self.profile, head_maps=self.head_maps, slots_end=self.end, foreign_slots=self.foreign.tolist(),
            block_pools=block_pools(classes, huge, self.constant.get("FAST_MAX", SMALL_MOST)),
            metadata_slots=[self.window + int(number) * self.superslab_size for number in metadata],
            superslab_size=self.superslab_size, unit_size=self.unit_size, cached_blocks=self.cached_blocks,
            cached_by=self.cached_ids)

    def tiers(self, slots):
        """The index in TIERS of each SuperSlab, by its number of free units."""
        free = numpy.array([int(mask).bit_count() for mask in slots["free"]], "i8")
        draining = self.units - 1 - self.constant["POOL_DRAINING_USED"]
        return numpy.select([free == 0, free < draining, free < self.units - 1], [0, 1, 2], 3)

    def totals(self, huge, units):
        profile = sum(size for _, size in self.profile)
        made = Totals(heap_profile=profile, mapped=profile, metadata=profile, footprint_peak=self.pool["footprint_peak"],
                      live_threads=self.registry["live_threads"],
                      heaps=sum(heap["state"] == self.constant["HEAP_LIVE"] for heap in self.heaps))
        if not self.committed:
            return made
        head = sum(size for _, size in self.head_maps)
        committed = self.end - self.begin - len(self.foreign) - int(units.decommitted.sum())
        unused = int((self.slots["kind"][self.begin:self.end] == self.constant["SLOT_UNUSED"]).sum())
        metadata = int((self.slots["kind"] == self.constant["SLOT_METADATA"]).sum()) * self.superslab_size
        present = ~units.decommitted
        block = self.classes["size"][self.class_id]
        slab_bytes = int((self.first > 0).sum()) * self.unit_size
        used, cached = int((self.used * block).sum()), int((self.cached * block).sum())
        pool_units = int(present.sum()) * (self.units - 1) * self.unit_size
        untouched = int((self.kind[present, 1:] == UNTOUCHED).sum()) * self.unit_size
        made.superslabs = len(self.rows)
        made.huge_live, made.huge_cached, made.huge_blocks = huge.live_bytes, huge.cached_bytes, huge.live_blocks
        made.mapped += head + committed * self.superslab_size + huge.live_bytes + huge.cached_bytes
        made.live = used - cached + huge.live_bytes
        made.cached = cached
        made.free_in_slab = slab_bytes - used
        made.retained = unused * self.superslab_size + pool_units - slab_bytes + huge.cached_bytes
        made.metadata += head + metadata + int(present.sum()) * self.unit_size
        made.purged = unused * self.superslab_size + untouched
        return made

    def class_counters(self):
        """By name, the sums over all heaps and the departed, an array by class."""
        place, departed = (self.descriptor.fields[f"{name}.classes"] for name in ("heap_body", "account"))
        kind = self.descriptor.dtype("class_counters")
        sums = {name: numpy.zeros(self.class_count, "u8") for name in kind.names}
        accounts = [(heap["data"], place) for heap in self.heaps] + [(self.departed, departed)]
        for data, where in accounts:
            rows = numpy.frombuffer(data, kind, where.count, where.offset)
            for name in kind.names:
                sums[name] += rows[name]
        return sums

    def departed_counters(self):
        """The counters of heaps that ended."""
        place = self.descriptor.fields["account.counters"]
        return self.descriptor.unpack("heap_counters", self.departed[place.offset:place.offset + place.size])

    def size_classes(self, counters):
        found = []
        active = self.active
        slabs = numpy.bincount(self.class_id[active], minlength=self.class_count)
        used = numpy.bincount(self.class_id[active], self.used[active], self.class_count).astype("i8")
        cached = numpy.bincount(self.class_id[active], self.cached[active], self.class_count).astype("i8")
        for class_id in numpy.flatnonzero(slabs):
            row = self.classes[class_id]
            found.append(SizeClass(int(class_id), int(row["size"]), int(slabs[class_id]), int(used[class_id] - cached[class_id]),
                                   int(cached[class_id]), int(slabs[class_id] * row["blocks"] - used[class_id]),
                                   bool(class_id >= self.constant["CLASS_SPAN_1"]),
                                   {name: int(values[class_id]) for name, values in counters.items()},
                                   int(slabs[class_id] * row["units"]) * self.unit_size))
        return found

    def threads(self, owner):
        most = max((heap["id"] for heap in self.heaps), default=0) + 1
        active, block = self.active, self.classes["size"][self.class_id]
        slabs = numpy.bincount(owner[active], minlength=most)
        slab_bytes = numpy.bincount(owner[active], self.length[active] * self.unit_size, most)
        live = numpy.bincount(owner[active], ((self.used - self.cached) * block)[active], most)
        kinds = {self.constant["HEAP_THREAD"]: "thread", self.constant["HEAP_HOUSE"]: "house",
                 self.constant["HEAP_FIRST_CLASS"]: "first_class", self.constant.get("HEAP_PROFILE"): "profile"}
        states = {self.constant["HEAP_UNUSED"]: "unused", self.constant["HEAP_LIVE"]: "live",
                  self.constant["HEAP_ORPHAN"]: "orphan"}
        name_of = getattr(self.memory, "thread_name", None)
        place, found = self.descriptor.fields["heap_body.counters"], []
        warm = self.descriptor.fields["heap_body.warm"]
        for heap in reversed(self.heaps):
            kind, state, number = kinds.get(heap["kind"], "?"), states.get(heap["state"], "?"), heap["id"]
            tid = heap["thread_id"] if (kind, state) == ("thread", "live") else None
            stocks = numpy.frombuffer(heap["data"], self.descriptor.dtype("warm_stock"), warm.count, warm.offset)
            counters = self.descriptor.unpack("heap_counters", heap["data"][place.offset:place.offset + place.size])
            found.append(Thread(number, kind, state, tid, name_of(tid) if tid and name_of else "", int(slabs[number]),
                                int(slab_bytes[number]), int(live[number]), self.cached_by.get(heap["address"], 0),
                                int(stocks["count"].sum()), heap["pending_count"], counters, heap["address"]))
        return found

    def pools(self, units):
        found = []
        for tier, name in enumerate(TIERS):
            state = units.state[(units.tier == tier) & ~units.decommitted][:, 1:]
            counts = [int((state == kind).sum()) for kind in (ACTIVE, WARM, DIRTY, UNTOUCHED)]
            found.append(Pool(name, len(state), *counts))
        return found


def summed(threads, departed):
    """The counters of all heaps and of the departed together."""
    return {name: before + sum(thread.counters[name] for thread in threads) for name, before in departed.items()}


def as_dict(shot, superslabs=False):
    """A snapshot as plain values, for JSON; with `superslabs`, each unit too."""
    made = {"time": shot.time, "pid": shot.pid, "command": shot.command, "version": shot.version,
            "totals": asdict(shot.totals), "counters": shot.counters, "options": shot.options,
            "classes": [asdict(row) for row in shot.classes],
            "threads": [asdict(row) | {"address": f"{row.address:#x}"} for row in shot.threads],
            "pools": [asdict(row) for row in shot.pools], "block_pools": [asdict(row) for row in shot.block_pools],
            "huge": [asdict(row) for row in shot.huge]}
    if superslabs:
        made["superslabs"] = [asdict(row) for row in shot.superslabs]
    return made
