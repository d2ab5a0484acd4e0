"""Takes a snapshot of the heap of a process that goes on running.

It makes few large reads and checks what they return. It follows a pointer only to where HAKMEM keeps such records,
follows a list no further than the list can be long, and counts a slab only if its header makes sense. It reads again
what was caught in the middle of a change."""

from __future__ import annotations

import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache
from itertools import cycle
from operator import add
from typing import TypeVar

from hakmem.clean import clean_bytes
from hakmem.compat import bit_count, zip_strict
from hakmem.live.descriptor import NUMBERS, USER_END, Damaged, Descriptor, find
from hakmem.live.huge import HugeState, read_huge
from hakmem.live.kinds_of_blocks import SMALL_MOST, block_pools
from hakmem.live.memory import LiveError, MappedMemory, Memory, Unreadable, begin_look, name_of, sense
from hakmem.live.model import (
    ACTIVE, BETWEEN, DIRTY, GUARD, TIERS, UNTOUCHED, WARM, Pool, Scope, SizeClass, Slab, Snapshot, Thread, Totals,
    Units)

TRIES = 5
# SuperSlab headers read at once.
HEADERS = 64
# Limit of mappings of the heap profile's tables, far more than there are.
PROFILE_MAPS = 1 << 16
PAGE = 4096
# Options whose value is the address of a text, and a limit above the longest text that the library keeps.
TEXT_OPTIONS = ("stats_file", "heap_profile", "heap_profile_signal", "heap_profile_unwind", "guard_file")
TEXT_MOST = 1 << 16
# Heaps that may be made while the list is read; limits of heaps and SuperSlabs, above those of the largest process.
NEW_HEAPS = 4096
HEAPS_MOST, SLOTS_MOST = 1 << 20, 1 << 22
# Limit of a slab's blocks, and of counts in the 16-bit arrays of a page.
BLOCKS_MOST = (1 << 16) - 1
ALL_FREE = 0xFFFFFFFE
# Numbers of a ring's entries are modulo 2^16.
RING_NUMBERS = (1 << 16) - 1
# Counters that only classes have: no heap has their sum.
HITS = ("malloc_hits", "free_hits")  # in a process with HAKMEM_FRONT_STATS=1
EVERYWHERE = (*HITS, "overflows", "direct", "returned_blocks")
SLAB = ("owner", "used", "class", "units", "state", "remote_count")


T = TypeVar("T")


class Torn(LiveError):
    """Something changed while it was read, so that it makes no sense."""


def untorn(memory: Memory, attempt: Callable[[], T]) -> T:
    """Returns what attempt() makes of one look at the memory. Tries again a few times if what it reads changes
    meanwhile or makes no sense."""
    for left in reversed(range(TRIES)):
        try:
            begin_look(memory)
            with sense(memory):
                return attempt()
        except (Torn, Unreadable):
            if left == 0:
                raise
    raise AssertionError("unreachable")


def snapshot(memory: MappedMemory, descriptor: Descriptor | None = None) -> Snapshot:
    """Returns the Snapshot of the process behind `memory`."""
    return snapshot_by(memory, descriptor or find(memory))


def snapshot_by(memory: Memory, descriptor: Descriptor) -> Snapshot:
    """Returns the Snapshot of the process or core behind `memory`, whose Descriptor is known."""
    return untorn(memory, lambda: Reader(memory, descriptor).snapshot())


class Reader:
    """One attempt at a snapshot."""

    def __init__(self, memory: Memory, descriptor: Descriptor) -> None:
        self.memory = memory
        self.descriptor = descriptor
        self.constant = descriptor.constants
        self.unit_size = self.constant["UNIT_SIZE"]
        self.superslab_size = self.constant["SUPERSLAB_SIZE"]
        self.units = self.constant["SUPERSLAB_UNITS"]
        self.class_count = self.constant["CLASS_COUNT"]

    def snapshot(self) -> Snapshot:
        """Returns the Snapshot."""
        self.begun = time.time()
        self.read_roots()
        self.read_slots()
        self.read_heaps()
        self.read_headers()
        self.read_caches()
        self.read_profile()
        self.read_guard()
        huge = read_huge(self.memory, self.descriptor, {heap["address"]: heap["id"] for heap in self.heaps})
        return self.made(huge)

    # ---- Reading ----

    def read_roots(self) -> None:
        """Reads the window, the shared pool, the registry, the size classes and the options."""
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
        # {name: a tuple with a value for each class}
        self.classes = self.descriptor.picker("size_class").columns(parts[4])
        self.check_classes()
        self.options = {name: self.text_at(value) if name in TEXT_OPTIONS else value
                        for name, value in self.descriptor.unpack("options", parts[5]).items()}
        self.counts = [place for name in ("seen", "run_count")
                       if (place := self.descriptor.fields.get(f"thread_cache.{name}"))
                       and place.size in NUMBERS and place.count >= self.class_count]
        self.counts_hits = bool(self.options.get("front_stats")) and self.has_runs and len(self.counts) == 2
        self.head_mapped = int.from_bytes(parts[6], "little") if "window_head_mapped" in roots else None

    def check_classes(self) -> None:
        """Raises Torn if no slab can have these size classes. Notes which kinds of bins this HAKMEM has."""
        slots = self.descriptor.fields["thread_cache.slots"].count
        self.has_deep_bins = "CACHE_SLOTS" in self.constant and {"deep_base", "deep_limit"} <= self.classes.keys()
        self.has_first_bins = "CACHE_SLOTS_FIRST" in self.constant and {"first_base", "first_limit"
                                                                        } <= self.classes.keys()
        deep = ("deep_base", "deep_limit") if self.has_deep_bins else ("slot_base", "slot_limit")
        first = ("first_base", "first_limit") if self.has_first_bins else ("slot_base", "slot_limit")
        self.has_runs = {"run_base", "run_limit"
                         } <= self.classes.keys() and "thread_cache.runs" in self.descriptor.fields
        run = ("run_base", "run_limit") if self.has_runs else ("slot_base", "slot_limit")
        places = (("slot_base", "slot_limit"), first, deep, run)
        rows = zip_strict(*(self.classes[name] for name in ("size", "blocks", "units")),
                          *(zip_strict(*(self.classes[name] for name in place)) for place in places))
        for number, (size, blocks, units, *stacks) in enumerate(rows):
            end = max(base + limit for base, limit in stacks)
            if (blocks > BLOCKS_MOST or units > self.units or end >= slots + 1
                    or number and blocks and not 0 < size * blocks <= units * self.unit_size):
                raise Damaged(f"{name_of(self.memory)}: its size class {number} is none: {blocks:,} blocks of {size:,} "
                              "bytes "
                              f"in {units:,} units")

    def text_at(self, address: int) -> str | None:
        """Returns the text of an option; None if it is not set. The library keeps the text until the process ends."""
        text = b""
        while address and b"\0" not in text and len(text) < TEXT_MOST:
            # Reads to the end of the page at most: the next page may be unmapped.
            text += self.memory.read(address + len(text), PAGE - (address + len(text)) % PAGE)
        return clean_bytes(text.partition(b"\0")[0]) if address else None

    def read_slots(self) -> None:
        """Reads the descriptors of those slots of the window that were ever mapped."""
        self.committed = self.window_units // self.units
        if self.committed > SLOTS_MOST or self.window % self.superslab_size or not self.window < USER_END:
            raise Torn(f"{name_of(self.memory)}: its window of {self.committed:,} SuperSlabs at {self.window:#x} makes "
                       "no sense")
        size = self.descriptor.types["slot"]
        data = self.memory.read(self.pool["slots"], self.committed * size) if self.committed else b""
        self.slots = self.descriptor.picker("slot").columns(data)
        kinds = self.slots["kind"]
        # Slots are handed out in order, so the first one in use lies right behind the window's head.
        self.begin = next((number for number, kind in enumerate(kinds) if kind), self.committed)
        self.rows = self.slots_of("SLOT_SUPERSLAB")
        # Slots from here on are not mapped now.
        self.end = max(min(self.pool["slots_committed"], self.committed), self.begin)
        self.foreign = [number for number in self.slots_of("SLOT_FOREIGN") if number < self.end]
        self.head_maps = self.maps_of_head()
        if any(not 0 <= size <= max(self.begin, 1) * self.superslab_size for _, size in self.head_maps):
            raise Torn(f"{name_of(self.memory)}: the head of its window makes no sense")

    def slots_of(self, kind: str) -> list[int]:
        """Returns the numbers of the slots of a kind."""
        wanted = self.constant.get(kind, -1)
        return [number for number, one in enumerate(self.slots["kind"]) if one == wanted]

    def maps_of_head(self) -> list[tuple[int, int]]:
        """Returns the mapped parts of the window's head. All of it is mapped if HAKMEM reserves its window."""
        if not self.committed:
            return []
        if self.head_mapped is None:
            return [(self.window, self.begin * self.superslab_size)]
        return [(self.window, self.constant["WINDOW_PAGE_MAP"] + self.head_mapped),
                (self.pool["slots"], self.head_mapped)]

    def in_metadata(self, address: int) -> bool:
        """Returns whether an address lies in a slot of metadata."""
        number, outside = divmod(address - self.window, self.superslab_size)
        return (0 <= number < self.committed and outside % 8 == 0
                and self.slots["kind"][number] == self.constant["SLOT_METADATA"])

    def read_heaps(self) -> None:
        """Reads all heaps. Their list only grows, at its head."""
        size, most = self.descriptor.types["heap"], min(self.registry["count"], HEAPS_MOST) + NEW_HEAPS
        self.heaps: list[dict[str, int]] = []
        seen: set[int] = set()
        address = self.registry["heaps"]
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
        self.read_scopes()

    def read_scopes(self) -> None:
        """Reads the scopes of all heaps that have one. A library without scopes has none."""
        self.scopes: dict[int, Scope] = {}  # by the heap's id
        heaps = [heap for heap in self.heaps if heap.get("scope") and self.in_metadata(heap["scope"])]
        if not heaps:
            return
        names = ("number", "live", "cap", "peak", "refused")
        picker, name = self.descriptor.picker("scope", *names), self.descriptor.fields["scope.name"]
        records = self.memory.read_many([(heap["scope"], self.descriptor.types["scope"]) for heap in heaps])
        for heap, record in zip_strict(heaps, records):
            number, *figures = next(iter(picker.rows(record)))
            text = record[name.offset:name.end].split(b"\0")[0].decode("ascii", "replace")
            self.scopes[heap["id"]] = Scope(number, text, heap["id"], *figures)

    def read_bodies(self) -> None:
        """Reads each heap's body. A purged one counts as zeros: its counters were added to the departed."""
        size, purged = self.descriptor.types["heap_body"], self.constant["MEMORY_PURGED"]
        there = [heap for heap in self.heaps if heap["body_purged"] != purged]
        for heap in there:
            if not self.in_metadata(heap["body"]):
                raise Torn(f"the body of heap {heap['id']} is at {heap['body']:#x}")
        bodies = self.memory.read_many([(heap["body"], size) for heap in there])
        # {the heap's address: its body}
        self.bodies = {heap["address"]: data for heap, data in zip_strict(there, bodies)}
        now = self.descriptor.root(self.memory, "registry")
        if now["folds"] != self.registry["folds"]:
            raise Torn("heaps ended while their counters were read")

    def read_headers(self) -> None:
        """Reads the slabs of all SuperSlabs that have any, and the states of all units."""
        free, touched, decommitted = (self.slots[name] for name in ("free", "touched", "decommitted"))
        self.state = [unused_units(free[number], touched[number], self.units) for number in self.rows]
        self.slabs: list[Slab] = []
        self.slab_of: dict[int, Slab] = {}  # number of a unit of the address space -> its slab
        wanted = [row for row, number in enumerate(self.rows) if free[number] != ALL_FREE and not decommitted[number]]
        place, guards = self.descriptor.fields["superslab.slabs"], self.descriptor.fields.get("superslab.guards")
        picker = self.descriptor.picker("slab", *SLAB)
        # Guard units of each SuperSlab, as bits. One that is not in use may have forgotten which they are.
        self.guards = [0] * len(self.rows)
        for first in range(0, len(wanted), HEADERS):
            rows = wanted[first:first + HEADERS]
            headers = self.memory.read_many([
                (self.window + self.rows[row] * self.superslab_size, place.end) for row in rows])
            for row, header in zip_strict(rows, headers):
                if guards is not None:
                    self.note_guards(row, int.from_bytes(header[guards.offset:guards.end], "little"))
                self.check_slabs(row, list(picker.rows(header[place.offset:])))

    def note_guards(self, row: int, guards: int) -> None:
        """Notes the guard units of a SuperSlab in use. A guard unit is free and has no memory."""
        number = self.rows[row]
        guards &= self.slots["free"][number] & ~self.slots["touched"][number]
        self.guards[row] = guards
        self.state[row] = bytes(
            GUARD if guards >> unit & 1 else state for unit, state in enumerate(self.state[row]))

    def check_slabs(self, row: int, headers: list[tuple[int, ...]]) -> None:
        """Keeps the slabs of a SuperSlab whose headers make sense."""
        active, warm = self.constant["SLAB_ACTIVE"], self.constant["SLAB_WARM"]
        lengths, blocks = self.classes["units"], self.classes["blocks"]
        state = bytearray(self.state[row])
        base = (self.window + self.rows[row] * self.superslab_size) // self.unit_size
        unit = 1
        while unit < self.units:
            owner, used, class_id, length, kind, remote = headers[unit]
            if not 0 < length <= self.units - unit:
                unit += 1
            elif kind == active and 0 < class_id < self.class_count and length == lengths[class_id]:
                slab = Slab(row, unit, length, class_id, min(max(used - remote, 0), blocks[class_id]), owner)
                self.slabs.append(slab)
                for number in range(unit, unit + length):
                    state[number] = ACTIVE
                    self.slab_of[base + number] = slab
                unit += length
            elif kind == warm:
                state[unit:unit + length] = bytes([WARM]) * length
                unit += length
            else:
                unit += 1
        self.state[row] = bytes(state)

    def stack_of(self, class_id: int, top: int) -> tuple[int, int]:
        """Returns the slot below a thread cache's stack, and the most blocks of that stack. `top` is the stack's
        top, which tells the kind of bin."""
        place = "slot"
        if self.has_deep_bins and top >= self.constant["CACHE_SLOTS"]:
            place = "deep"
        elif self.has_first_bins and top < self.constant["CACHE_SLOTS_FIRST"]:
            place = "first"
        return self.classes[f"{place}_base"][class_id], self.classes[f"{place}_limit"][class_id]

    def run_of(self, class_id: int) -> tuple[int, int]:
        """Returns the same for a run, the blocks that a thread takes while its calls are counted for samples."""
        return self.classes["run_base"][class_id], self.classes["run_limit"][class_id]

    def read_caches(self) -> None:
        """Counts the blocks in thread caches: how many of each slab, and how many bytes in each thread."""
        fields, thread = self.descriptor.fields, self.constant["HEAP_THREAD"]
        owners = [heap for heap in self.heaps if heap["kind"] == thread and not heap["cache_purged"]
                  and heap["cache"] and self.in_metadata(heap["cache"])]
        stacks, slots = [fields["thread_cache.bins"]], fields["thread_cache.slots"]
        if self.has_runs:
            stacks.append(fields["thread_cache.runs"])
        size = self.classes["size"]
        picker, wanted, whose = self.descriptor.picker("bin", "top"), [], []
        counts = self.read_counts(owners)
        tops = self.memory.read_many([(heap["cache"] + stack.offset, stack.size * stack.count) for heap in owners
                                      for stack in stacks])
        for number, data in enumerate(tops):
            heap, is_run = owners[number // len(stacks)], number % len(stacks)
            for class_id, (top,) in enumerate(list(picker.rows(data))[:self.class_count]):
                base, limit = self.run_of(class_id) if is_run else self.stack_of(class_id, top)
                count = top - base
                if counts and top:
                    left = counts[heap["address"]][is_run][class_id] - count
                    self.uncounted[is_run][class_id] += max(0, left if is_run else -left)
                # A cache that never belonged to a thread reads as zeros.
                if 0 < count <= limit:
                    wanted.append((heap["cache"] + slots.offset + (base + 1) * slots.size, count * slots.size))
                    whose.append((heap, class_id))
        self.cached_by = dict.fromkeys((heap["address"] for heap in owners), 0)
        self.cached_blocks: dict[int, int] = {}
        found = [(heap, class_id, array("Q", data))
                 for (heap, class_id), data in zip_strict(whose, self.memory.read_many(wanted))]
        for heap, its_class, blocks in (*found, *self.quarantined(owners)):
            for block in blocks:
                slab = self.slab_of.get(block // self.unit_size)
                # Any other block was caught in the middle of a change.
                if slab is None or its_class not in (slab.class_id, None) or block in self.cached_blocks:
                    continue
                slab.cached += 1
                self.cached_blocks[block] = heap["id"]
                self.cached_by[heap["address"]] += size[slab.class_id]
        for slab in self.slabs:
            slab.cached = min(slab.cached, slab.used)

    def read_counts(self, owners: list[dict[str, int]]) -> dict[int, list[tuple[int, ...]]]:
        """Returns {address of a heap: [blocks in each bin at its last slow call, in each run at its begin]}, if the
        process counts hits: those since then are not in the heap's counters yet."""
        self.uncounted = ([0] * self.class_count, [0] * self.class_count)  # frees, allocations
        if not self.counts_hits:
            return {}
        wanted = [(heap["cache"] + place.offset, place.size * place.count) for heap in owners for place in self.counts]
        found = [struct.unpack(f"<{place.count}{NUMBERS[place.size]}", data)
                 for place, data in zip(cycle(self.counts), self.memory.read_many(wanted))]
        return {heap["address"]: found[2 * number:2 * number + 2] for number, heap in enumerate(owners)}

    def quarantined(self, owners: list[dict[str, int]]) -> Iterator[tuple[dict[str, int], int | None, array[int]]]:
        """Yields (heap, class or None, blocks) for free blocks that hardened threads hold outside of their stacks: spans
        of any class (src/harden/spans.h), and in earlier versions a ring for each class."""
        fields, types = self.descriptor.fields, self.descriptor.types
        if self.descriptor.constants.get("HAK_SECURE") and "thread_cache.spans" in fields:
            place, count, span = fields["thread_cache.spans"].offset, fields["spans.count"], fields["spans.span"]
            for heap, data in zip_strict(owners, self.memory.read_many([
                    (heap["cache"] + place, types["spans"]) for heap in owners])):
                number = int.from_bytes(data[count.offset:count.end], "little")
                if number <= span.count:
                    yield heap, None, array("Q", data[span.offset:span.offset + number * span.size])
        if "thread_cache.hardened" not in fields:
            return
        place, used = fields["thread_cache.hardened"].offset, fields["bins.used"].offset
        flags = self.memory.read_many([(heap["cache"] + place + used, 1) for heap in owners])
        hardened = [heap for heap, flag in zip_strict(owners, flags) if flag != b"\0"]
        if not hardened:
            return
        constants = list(self.descriptor.picker("ring_row", "first", "mask").rows(
            self.memory.read(self.descriptor.roots["ring_rows"], self.class_count * types["ring_row"])))
        slots, rings, spans = (fields[name] for name in ("thread_cache.slots", "bins.rings", "bins.spans"))
        count, span = fields["spans.count"], fields["spans.span"]
        wanted, whose = [], []
        for heap, data in zip_strict(hardened, self.memory.read_many([
                (heap["cache"] + place, types["bins"]) for heap in hardened])):
            ends = self.descriptor.picker("ring", "head", "tail").rows(data[rings.offset:rings.end])
            for class_id, ((head, tail), (first, mask)) in enumerate(zip_strict(ends, constants)):
                held = (head - tail) & RING_NUMBERS
                if 0 < held <= mask + 1 and first + mask < slots.count:
                    wanted.append((heap["cache"] + slots.offset + first * slots.size, (mask + 1) * slots.size))
                    whose.append((heap, class_id, tail, held))
            number = int.from_bytes(data[spans.offset + count.offset:spans.offset + count.end], "little")
            if number <= span.count:
                waiting = data[spans.offset + span.offset:spans.offset + span.offset + number * span.size]
                yield heap, None, array("Q", waiting)
        for (heap, class_id, tail, held), data in zip_strict(whose, self.memory.read_many(wanted)):
            ring = array("Q", data)
            yield heap, class_id, array("Q", [ring[(tail + number) % len(ring)] for number in range(held)])

    def read_profile(self) -> None:
        """Reads the mappings of the heap profile's tables, (address, bytes). A HAKMEM that does not tell has none."""
        self.profile = []
        if "table_memory" not in self.descriptor.roots:
            return
        memory = self.descriptor.root(self.memory, "table_memory")
        address = memory["maps"]
        seen: set[int] = set()
        while address:
            if address % PAGE or address in seen or len(seen) >= PROFILE_MAPS:
                raise Torn(f"the list of the heap profile's mappings leads to {address:#x}")
            seen.add(address)
            row = self.descriptor.unpack("table_map", self.memory.read(address, self.descriptor.types["table_map"]))
            self.profile.append((address, row["bytes"]))
            address = row["next"]
        if sum(size for _, size in self.profile) != memory["bytes"]:
            raise Torn("the heap profile's mappings changed")

    def read_guard(self) -> None:
        """Reads the range of guarded blocks, (address, bytes), and the bytes of pages in use, if there are."""
        self.guard, self.guarded, self.guarded_live = [], 0, 0
        if "guard" not in self.descriptor.roots:
            return
        guard = self.descriptor.root(self.memory, "guard")
        if guard["bytes"]:
            if guard["start"] % PAGE or guard["live"] > guard["count"]:
                raise Torn("the figures of guarded blocks make no sense")
            self.guard, self.guarded = [(guard["start"], guard["bytes"])], guard["live"] * guard["page"]
            self.guarded_live = min(guard["live_bytes"], self.guarded)

    # ---- Putting together ----

    def made(self, huge: HugeState) -> Snapshot:
        """Returns the Snapshot of what was read."""
        ids = {heap["address"]: heap["id"] for heap in self.heaps}
        named = getattr(self.memory, "command", None)
        for slab in self.slabs:
            slab.owner = ids.get(slab.owner, 0)
        self.slab_counts = Counter(slab.class_id for slab in self.slabs)

        def of_rows(name: str) -> list[int]:
            return [self.slots[name][number] for number in self.rows]
        units = Units(
            number=self.rows, address=[self.window + number * self.superslab_size for number in self.rows],
            tier=[self.tier(*row) for row in zip_strict(of_rows("free"), of_rows("bucket"), self.guards)],
            huge_pages=[kind == self.constant["PAGES_HUGE"] for kind in of_rows("huge_pages")],
            decommitted=[gone != 0 for gone in of_rows("decommitted")], state=self.state, slabs=self.slabs)
        threads = self.threads()
        counters = self.class_counters()
        classes = self.size_classes(counters)
        return Snapshot(
            time=self.begun, pid=getattr(self.memory, "pid", None), command=named() if named else "",
            version=self.descriptor.version, totals=self.totals(huge, units), classes=classes,
            threads=threads, pools=self.pools(units), huge=huge.blocks,
            counters=summed(threads, self.departed_counters()) | {
                name: sum(values) for name, values in counters.items() if name in EVERYWHERE} | self.pool_counters(),
            options=self.options,
            hardened=bool(self.descriptor.constants.get("HAK_SECURE") or self.options.get("hardened")),
            block_sizes=list(self.classes["size"]), class_blocks=list(self.classes["blocks"]), units=units,
            head=(self.window, self.begin * self.superslab_size if self.committed else 0),
            profile_maps=self.profile, guard_maps=self.guard, head_maps=self.head_maps, slots_end=self.end,
            foreign_slots=self.foreign,
            block_pools=block_pools(classes, huge, self.constant.get("FAST_MAX", SMALL_MOST)),
            metadata_slots=[self.window + number * self.superslab_size for number in self.slots_of("SLOT_METADATA")],
            superslab_size=self.superslab_size, unit_size=self.unit_size, cached_blocks=self.cached_blocks,
            scopes=list(self.scopes.values()))

    def tier(self, mask: int, bucket: int, guards: int) -> int:
        """Returns the index in TIERS of a SuperSlab with these units free, some of which are guard units."""
        free = bit_count(mask)
        if mask == 0 or (guards and bucket == 0):  # no room between the guard units
            return TIERS.index("FULL")
        if free >= self.units - 1:
            return TIERS.index("EMPTY")
        return TIERS.index("HOT" if free < self.units - 1 - self.constant["POOL_DRAINING_USED"] else "DRAINING")

    def totals(self, huge: HugeState, units: Units) -> Totals:
        """Returns the Totals."""
        profile = sum(size for _, size in self.profile)
        made = Totals(heap_profile=profile, mapped=profile + self.guarded, live=self.guarded_live,
                      metadata=profile + self.guarded - self.guarded_live,
                      footprint_peak=self.pool["footprint_peak"],
                      live_threads=self.registry["live_threads"],
                      heaps=sum(heap["state"] == self.constant["HEAP_LIVE"] for heap in self.heaps))
        if not self.committed:
            return made
        head = sum(size for _, size in self.head_maps)
        committed = self.end - self.begin - len(self.foreign) - sum(units.decommitted)
        unused = self.slots["kind"][self.begin:self.end].count(self.constant["SLOT_UNUSED"])
        metadata = len(self.slots_of("SLOT_METADATA")) * self.superslab_size
        present, size = units.present, self.classes["size"]
        slab_bytes = sum(slab.length for slab in self.slabs) * self.unit_size
        used = sum(slab.used * size[slab.class_id] for slab in self.slabs)
        cached = sum(slab.cached * size[slab.class_id] for slab in self.slabs)
        pool_units = len(present) * (self.units - 1) * self.unit_size
        untouched, guards = (sum(units.state[row].count(kind, 1) for row in present) * self.unit_size
                             for kind in (UNTOUCHED, GUARD))
        made.superslabs = len(self.rows)
        made.huge_live, made.huge_cached, made.huge_blocks = huge.live_bytes, huge.cached_bytes, huge.live_blocks
        made.mapped += head + committed * self.superslab_size + huge.live_bytes + huge.cached_bytes
        made.live += used - cached + huge.live_bytes
        made.cached = cached
        made.free_in_slab = slab_bytes - used
        made.retained = unused * self.superslab_size + pool_units - slab_bytes + huge.cached_bytes
        made.metadata += head + metadata + len(present) * self.unit_size
        made.purged, made.guard_units = unused * self.superslab_size + untouched + guards, guards
        return made

    def class_counters(self) -> dict[str, list[int]]:
        """Returns {name: a list by class} of the sums over all heaps and the departed."""
        place, departed = (self.descriptor.fields[f"{name}.classes"] for name in ("heap_body", "account"))
        picker = self.descriptor.picker("class_counters")
        sums = {name: [0] * self.class_count for name in picker.names}
        accounts = [(data, place) for data in self.bodies.values()] + [(self.departed, departed)]
        for data, where in accounts:
            for name, values in picker.columns(data[where.offset:where.end]).items():
                sums[name] = list(map(add, sums[name], values))
        for name, uncounted in zip_strict(HITS, reversed(self.uncounted)):
            if not self.counts_hits:
                sums.pop(name, None)
            elif name in sums:
                sums[name] = list(map(add, sums[name], uncounted))
        return sums

    def pool_counters(self) -> dict[str, int]:
        """Returns how many slabs the shared pool gave, and how many SuperSlabs it made for them."""
        if "slabs_taken" not in self.pool:
            return {}
        return {"shared_pool_slabs": self.pool["slabs_taken"],
                "shared_pool_superslabs": max(0, len(self.rows) - self.pool["prewarmed"])}

    def departed_counters(self) -> dict[str, int]:
        """Returns the counters of heaps that have ended."""
        place = self.descriptor.fields["account.counters"]
        return self.descriptor.unpack("heap_counters", self.departed[place.offset:place.offset + place.size])

    def size_classes(self, counters: dict[str, list[int]]) -> list[SizeClass]:
        """Returns the SizeClasses in use."""
        used: Counter[int] = Counter()
        cached: Counter[int] = Counter()
        for slab in self.slabs:
            used[slab.class_id] += slab.used
            cached[slab.class_id] += slab.cached
        found, size, blocks, units = [], *(self.classes[name] for name in ("size", "blocks", "units"))
        for class_id, slabs in sorted(self.slab_counts.items()):
            found.append(
                SizeClass(class_id, size[class_id], slabs, used[class_id] - cached[class_id], cached[class_id],
                          slabs * blocks[class_id] - used[class_id], class_id >= self.constant["CLASS_SPAN_1"],
                          {name: values[class_id]
                           for name, values in counters.items()}, slabs * units[class_id] * self.unit_size))
        return found

    def threads(self) -> list[Thread]:
        """Returns a Thread for each heap."""
        size = self.classes["size"]
        slabs: Counter[int] = Counter()
        slab_bytes: Counter[int] = Counter()
        live: Counter[int] = Counter()
        for slab in self.slabs:
            slabs[slab.owner] += 1
            slab_bytes[slab.owner] += slab.length * self.unit_size
            live[slab.owner] += (slab.used - slab.cached) * size[slab.class_id]
        kinds = {self.constant["HEAP_THREAD"]: "thread", self.constant["HEAP_HOUSE"]: "house",
                 self.constant["HEAP_FIRST_CLASS"]: "first_class", self.constant.get("HEAP_PROFILE"): "profile",
                 self.constant.get("HEAP_SHARED"): "shared", self.constant.get("HEAP_LONG"): "long_lived"}
        states = {self.constant["HEAP_UNUSED"]: "unused", self.constant["HEAP_LIVE"]: "live",
                  self.constant["HEAP_ORPHAN"]: "orphan"}
        name_of = getattr(self.memory, "thread_name", None)
        place, found = self.descriptor.fields["heap_body.counters"], []
        warm, stock = self.descriptor.fields["heap_body.warm"], self.descriptor.picker("warm_stock", "count")
        nothing = bytes(self.descriptor.types["heap_body"])
        for heap in reversed(self.heaps):
            kind, state, number = kinds.get(heap["kind"], "?"), states.get(heap["state"], "lost"), heap["id"]
            tid = heap["thread_id"] if (kind, state) == ("thread", "live") else None
            name = (f"scope {self.scopes[number].name}" if number in self.scopes
                    else name_of(tid) if tid and name_of else "")
            data = self.bodies.get(heap["address"], nothing)
            stocks = [count for count, in stock.rows(data[warm.offset:warm.end])]
            counters = self.descriptor.unpack("heap_counters", data[place.offset:place.end])
            found.append(Thread(
                number, kind, state, tid, name, slabs[number], slab_bytes[number],
                live[number], self.cached_by.get(heap["address"], 0), sum(stocks), heap["pending_count"], counters,
                heap["address"]))
        return found

    def pools(self, units: Units) -> list[Pool]:
        """Returns a Pool for each tier."""
        found = []
        for tier, name in enumerate(TIERS):
            states = [units.state[row] for row in units.present if units.tier[row] == tier]
            counts = [sum(state.count(kind, 1) for state in states) for kind in (ACTIVE, WARM, DIRTY, UNTOUCHED, GUARD)]
            found.append(Pool(name, len(states), *counts))
        return found


@lru_cache(maxsize=1 << 16)
def unused_units(free: int, touched: int, units: int) -> bytes:
    """Returns the states of a SuperSlab's units that belong to no slab: dirty, untouched, or between two states."""
    return bytes(
        (DIRTY if touched >> unit & 1 else UNTOUCHED) if free >> unit & 1 else BETWEEN for unit in range(units))


def summed(threads: list[Thread], departed: dict[str, int]) -> dict[str, int]:
    """Returns the sums of the counters over all heaps and the departed."""
    return {name: before + sum(thread.counters[name] for thread in threads) for name, before in departed.items()}


def as_dict(shot: Snapshot, superslabs: bool = False) -> dict[str, object]:
    """Returns a snapshot as plain values for JSON, with each unit if `superslabs` is set."""
    made: dict[str, object] = {
            "time": shot.time, "pid": shot.pid, "command": shot.command, "version": shot.version,
            "totals": asdict(shot.totals), "counters": shot.counters, "options": shot.options,
            "classes": [asdict(row) for row in shot.classes],
            "threads": [asdict(row) | {"address": f"{row.address:#x}"} for row in shot.threads],
            "pools": [asdict(row) for row in shot.pools], "block_pools": [asdict(row) for row in shot.block_pools],
            "huge": [asdict(row) for row in shot.huge], "scopes": [asdict(row) for row in shot.scopes]}
    if superslabs:
        made["superslabs"] = [asdict(row) for row in shot.superslabs]
    return made
