"""Explains what each resident byte of a process is for: HAKMEM's parts by page, everything else by kind of mapping."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Optional, Protocol

from hakmem.compat import bit_count, zip_strict
from hakmem.live import words
from hakmem.live.departure import Departure, departure, has_purge_thread
from hakmem.live.descriptor import Descriptor, find
from hakmem.live.heap import HEADERS, snapshot
from hakmem.live.kinds import KINDS, kind_of_areas
from hakmem.live.model import TIERS, Huge, Slab, Snapshot
from hakmem.live.moment import Moment, take_moment
from hakmem.live.pages import PAGE, USER_END, Area, Pagemap, PagemapError, Sweep, read_areas
from hakmem.live.show import new_table
from hakmem.screen import Console, Text
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.live.memory import Memory, ProcessMemory

HEAP_PARTS = {
    "live": "blocks that the program holds",
    "cached": "blocks in thread caches",
    "fragmentation": "free bytes that blocks keep: on the same page, or in a slab more than half in use",
    "free_in_slab": "other free pages of slabs in use: they wait to be used again, or to leave",
    "retained": "free units and huge ranges: they wait to be used again, or to leave",
    "huge_pages": "unused, on huge pages whose other parts are used: they wait, while nothing else of the page is freed",
    "metadata": "HAKMEM's own: headers, page map, caches, the heap profile's tables",
}
# Disjoint (start, end, part) of memory that HAKMEM has mapped; part is None for a SuperSlab.
Claim = tuple[int, int, Optional[str]]
# What places_of tells of a page.
PagePlace = tuple[int, int, int, int, int]
# A process is said to move if it changes by more than this part of its Rss during the look.
MOVING = 0.01


class Notes(Protocol):
    """Takes what superslab_pages finds."""

    def slab(self, row: int, slab: Slab, live: int, held: int, huge: int) -> None:
        """A slab with memory. live: its live blocks. held: the free bytes that stay because of blocks. huge: those of
        them that stay only because they lie on a huge page."""

    def superslab(self, row: int, header: int, unused: int) -> None:
        """A SuperSlab with memory. header: bytes. unused: bytes on its huge page that belong to no slab."""


@dataclass
class Explanation:
    """Resident bytes by part, and how well they add up."""

    pid: int
    title: str
    rss: int  # the sum of smaps
    swap: int
    heap: dict[str, int] = field(default_factory=dict)
    other: dict[str, int] = field(default_factory=dict)
    estimated: str = ""  # why the heap's parts are estimates, if they are
    huge_pages: int = 0  # anonymous huge pages, in use or not
    rss_before: int = 0  # just before the pages were looked at
    rss_after: int = 0  # just after; rss is rss_before or rss_after, whichever is nearer to the sum
    looks: int = 1
    departure: Departure | None = None  # of what waits
    live: int = 0  # bytes of blocks in use, resident or not
    heap_drift: int = 0  # bytes by which a part of the heap changed from the first reading of it to the last, at most

    @property
    def sum(self) -> int:
        """The sum of all parts."""
        return sum(self.heap.values()) + sum(self.other.values())

    @property
    def waiting(self) -> int:
        """The bytes that wait to be used again or to leave."""
        return self.heap["free_in_slab"] + self.heap["retained"] + self.heap["huge_pages"]

    @property
    def difference(self) -> int:
        """How much the sum exceeds Rss."""
        return self.sum - self.rss

    @property
    def moving(self) -> bool:
        """Whether the sum differs from Rss before or after by more than one percent."""
        return max(abs(self.sum - self.rss_before), abs(self.sum - self.rss_after)) > self.rss * MOVING


def explain_process(memory: ProcessMemory) -> Explanation:
    """Returns the Explanation of a process."""
    descriptor = find(memory)
    try:
        with Pagemap(memory.pid) as pagemap:
            moment = take_moment(memory, descriptor, pagemap)
    except PagemapError as error:
        return explain_by_proportion(memory, descriptor, str(error))
    return explanation_of(memory, descriptor, moment, claims_of(moment.shot, moment.huge))


def explanation_of(memory: ProcessMemory, descriptor: Descriptor, moment: Moment, claims: list[Claim],
                   notes: Notes | None = None) -> Explanation:
    """Returns the Explanation of a Moment. notes: as for superslab_pages."""
    made = explanation(memory, moment.shot, moment.areas, moment.rss)
    made.rss_before, made.rss_after, made.looks = moment.before, moment.after, moment.looks
    made.heap_drift = moment.drift
    made.heap = by_pages(memory, descriptor, moment, claims, notes)
    pieces = outside(moment, claims)
    for piece, kind in zip_strict(pieces, kind_of_areas(memory, pieces)):
        made.other[kind] += piece.rss
    # Memory that was mapped after the mappings were read.
    made.other["other anonymous memory"] += moment.sweep.total + moment.odd - made.sum
    return made


def explanation(memory: ProcessMemory, shot: Snapshot, areas: list[Area], rss: int) -> Explanation:
    """Returns an Explanation without parts."""
    return Explanation(memory.pid, words.heading(shot), rss, sum(area.swap for area in areas), live=shot.totals.live,
                       other=dict.fromkeys(KINDS, 0), huge_pages=sum(area.huge for area in areas), rss_before=rss,
                       rss_after=rss, departure=departure(shot.options, has_purge_thread(memory)))


# ---- Who has which addresses ----

def claims_of(shot: Snapshot, huge: Iterable[Huge]) -> list[Claim]:
    """Returns disjoint (start, end, part) of all memory that HAKMEM has mapped, by address. part is None for a
    SuperSlab.

    Huge blocks come from several moments. If two claims overlap, the earlier one in the list counts. What was a live
    block at any of the moments counts as one; kept ranges get what is left."""
    wanted: list[Claim] = [(address, address + size, "metadata") for address, size in shot.head_maps]
    wanted += [(address, address + shot.superslab_size, "metadata") for address in shot.metadata_slots]
    wanted += [(address, address + size, "metadata") for address, size in shot.profile_maps]
    wanted += [(address, address + size, "live") for address, size in shot.guard_maps]
    wanted += [(shot.units.address[row], shot.units.address[row] + shot.superslab_size, None)
               for row in shot.units.present]
    wanted += [(block.address, block.address + block.bytes, "live") for block in huge if block.live]
    wanted += [(block.address, block.address + block.bytes, "retained") for block in huge if not block.live]
    starts: list[int] = []  # by address, as `taken` is
    taken: list[Claim] = []
    for start, end, part in wanted:
        at = bisect_right(starts, start)
        if at and taken[at - 1][1] > start:
            start = taken[at - 1][1]
        while start < end:
            limit = min(end, starts[at]) if at < len(starts) else end
            if start < limit:
                starts.insert(at, start)
                taken.insert(at, (start, limit, part))
                at += 1
            if at >= len(taken):
                break
            start = max(start, taken[at][1])
            at += 1
    return taken


def outside(moment: Moment, claims: list[Claim]) -> list[Area]:
    """Returns the mappings without the claims, as Areas with their Rss. The kernel merges adjacent mappings."""
    odd, pieces, first = {area.mapping.start: area for area in moment.areas if area.odd}, [], 0
    for mapping in moment.mappings:
        if mapping.start >= USER_END:
            continue  # a mapping of the kernel
        if mapping.start in odd:
            pieces.append(odd[mapping.start])
            continue
        while first < len(claims) and claims[first][1] <= mapping.start:
            first += 1
        at, number = mapping.start, first
        while at < mapping.end:
            start, end = claims[number][:2] if number < len(claims) else (mapping.end, mapping.end)
            if start > at:
                until = min(start, mapping.end)
                pieces.append(Area(replace(mapping, start=at, end=until), moment.sweep.bytes(at, until)))
            at = max(at, end)
            number += 1
    return pieces


# ---- By pages ----

def by_pages(memory: Memory, descriptor: Descriptor, moment: Moment, claims: list[Claim],
             notes: Notes | None = None) -> dict[str, int]:
    """Returns resident bytes by HEAP_PARTS. notes: as for superslab_pages."""
    parts = dict.fromkeys(HEAP_PARTS, 0)
    for start, end, part in claims:
        if part:
            parts[part] += moment.sweep.bytes(start, end)
    caches = cached_by_slab(moment.shot)
    place = descriptor.fields["superslab.slabs"]
    picker = descriptor.picker("slab", "local", "remote")
    rows = range(len(moment.shot.units.number))
    for first in range(0, len(rows), HEADERS):
        some = rows[first:first + HEADERS]
        headers = memory.read_many([(moment.shot.units.address[row] + place.offset, place.size * place.count)
                                    for row in some])
        for row, header in zip_strict(some, headers):
            superslab_pages(moment.shot, moment.sweep, row, list(picker.rows(header)), caches, parts, notes)
    return parts


def cached_by_slab(shot: Snapshot) -> dict[int, int]:
    """Returns {a slab's address: bits of the numbers of its blocks that lie in thread caches}."""
    unit = shot.unit_size
    found: dict[int, int] = {}
    slab_of = {(shot.units.address[slab.row] // unit) + number: slab for slab in shot.units.slabs
               for number in range(slab.first, slab.first + slab.length)}
    for block in shot.cached_blocks:
        slab = slab_of[block // unit]
        start = shot.units.address[slab.row] + slab.first * unit
        number = (block - start) // shot.block_sizes[slab.class_id]
        if number < shot.class_blocks[slab.class_id]:
            found[start] = found.get(start, 0) | 1 << number
    return found


def superslab_pages(shot: Snapshot, sweep: Sweep, row: int, headers: list[tuple[bytes, bytes]], caches: dict[int, int],
                    parts: dict[str, int], notes: Notes | None = None) -> None:
    """Adds the pages of a SuperSlab to the parts. headers: (free blocks, blocks freed by others) of its slabs, as bits.

    notes gets each slab with memory, and then the SuperSlab."""
    units, unit_size, address = shot.units, shot.unit_size, shot.units.address[row]
    resident, of_unit, per_unit = sweep.pages(address,
                                              shot.superslab_size), (1 << unit_size // PAGE) - 1, unit_size // PAGE
    header = bit_count(resident & of_unit) * PAGE
    parts["metadata"] += header
    unused, free = resident & ~of_unit, 0
    # What is unused on a huge page is there because of the rest of it, unless nothing of it is used.
    huge = units.tier[row] != TIERS.index("EMPTY") and sweep.is_huge(address, shot.superslab_size)
    for slab in units.by_row[row]:
        pages = resident >> slab.first * per_unit & (1 << slab.length * per_unit) - 1
        unused &= ~((1 << slab.length * per_unit) - 1 << slab.first * per_unit)
        if not pages:
            continue
        local, remote = headers[slab.first]
        cached = caches.get(address + slab.first * unit_size, 0)
        blocks = (1 << shot.class_blocks[slab.class_id]) - 1
        free_bits = int.from_bytes(local, "little") | int.from_bytes(remote, "little")
        live = blocks & ~free_bits & ~cached & ~shot.withheld(slab.class_id)
        found = slab_pages(places_of(shot.block_sizes[slab.class_id], slab.length * unit_size, blocks.bit_length()),
                           pages, live, cached)
        for part, size in zip_strict(("live", "cached", "fragmentation"), found[:3]):
            parts[part] += size
        stays = found[3] if is_tight(shot, slab) else 0
        parts["fragmentation"] += stays
        free += found[3] - stays
        if notes:
            of_huge = found[3] - stays if huge else 0
            notes.slab(row, slab, bit_count(live), found[2] + stays + of_huge, of_huge)
    retained = bit_count(unused) * PAGE
    if huge:
        parts["huge_pages"] += retained + free
    else:
        parts["retained"] += retained
        parts["free_in_slab"] += free
    if notes and resident:
        notes.superslab(row, header, retained if huge else 0)


def is_tight(shot: Snapshot, slab: Slab) -> bool:
    """Returns whether the free pages of a slab stay because more than half of it is in use, as slab_scrub in
    src/pool/slab.c."""
    return slab.used * shot.block_sizes[slab.class_id] * 2 > slab.length * shot.unit_size


@lru_cache(maxsize=256)
def places_of(size: int, slab_bytes: int, blocks: int) -> list[PagePlace]:
    """Returns, for each page of a slab: (the first block on it, bytes of that block on it, number of whole blocks
    behind it, bytes of the last block, which continues on the next page, the size of a block)."""
    found = []
    for start in range(0, slab_bytes, PAGE):
        end = min(start + PAGE, size * blocks)
        first = start // size
        # The slab's tail holds no block.
        of_first = max(min((first + 1) * size, end) - start, 0)
        left = max(end - start - of_first, 0)
        found.append((first, of_first, left // size, left % size, size))
    return found


def slab_pages(places: list[PagePlace], pages: int, live: int, cached: int) -> list[int]:
    """Returns the resident bytes of a slab: live, cached, free beside blocks, and on wholly free pages."""
    sums = [0, 0, 0, 0]
    for number, place in enumerate(places):
        if pages >> number & 1:
            of_live = bytes_on(place, live) if live else 0
            of_cached = bytes_on(place, cached) if cached else 0
            sums[0] += of_live
            sums[1] += of_cached
            sums[2 if of_live or of_cached else 3] += PAGE - of_live - of_cached
    return sums


def bytes_on(place: PagePlace, blocks: int) -> int:
    """Returns how many bytes of the given blocks lie on a page."""
    first, of_first, whole, of_last, size = place
    blocks >>= first
    found = of_first if blocks & 1 else 0
    if whole:
        found += bit_count(blocks >> 1 & (1 << whole) - 1) * size
    if of_last and blocks >> whole + 1 & 1:
        found += of_last
    return found


# ---- Without pages ----

def explain_by_proportion(memory: ProcessMemory, descriptor: Descriptor, why: str) -> Explanation:
    """Returns the Explanation by smaps, with estimates, if the kernel does not tell which pages are there."""
    shot, areas = snapshot(memory, descriptor), read_areas(memory)
    made = explanation(memory, shot, areas, sum(area.rss for area in areas))
    made.estimated = why
    claims, inside = claims_of(shot, shot.huge), 0
    for area, kind in zip_strict(areas, kind_of_areas(memory, areas)):
        if any(start < area.mapping.end and end > area.mapping.start for start, end, _ in claims):
            inside += area.rss
        else:
            made.other[kind] += area.rss
    made.heap = by_proportion(shot, inside)
    return made


def by_proportion(shot: Snapshot, rss: int) -> dict[str, int]:
    """Returns estimates of the parts: blocks in use are resident first, then free memory in proportion."""
    totals, parts, left = shot.totals, dict.fromkeys(HEAP_PARTS, 0), rss
    headers = totals.metadata - sum(size for _, size in shot.head_maps)
    for name, size in (("live", totals.live), ("cached", totals.cached), ("metadata", headers)):
        parts[name] = min(size, left)
        left -= parts[name]
    dirty = totals.retained - min(totals.purged, totals.retained)
    whole = totals.free_in_slab + dirty
    if whole:
        parts["retained"] = min(dirty, left * dirty // whole)
    parts["fragmentation"] = min(totals.free_in_slab, left - parts["retained"])
    parts["metadata"] += left - parts["retained"] - parts["fragmentation"]
    return parts


# ---- Showing ----

def explanation_dict(made: Explanation) -> dict[str, object]:
    """Returns the Explanation for JSON."""
    return {**asdict(made), "waiting": made.waiting, "sum": made.sum, "difference": made.difference,
            "moving": made.moving}


def print_explanation(console: Console, made: Explanation, sampled: tuple[int, int] | None = None) -> None:
    """Prints the Explanation. sampled: the bytes in use by the heap profile, and the half of their interval."""
    console.print(Text(made.title, style="bold"))
    by = (f"; {bytes_column(sampled[0])} ±{bytes_column(sampled[1])} by the samples of hakmem heap" if sampled else "")
    console.print(f"Blocks in use: {bytes_column(made.live)}, exactly, resident or not{by}.")
    table = new_table("Resident memory", "<", "bytes", "", "of Rss", "<what it is")
    meanings = {**HEAP_PARTS, **KINDS}
    for rows in (made.heap, made.other):
        for number, (name, value) in enumerate(rows.items()):
            table.add_row(name.replace("_", " "), f"{value:,}", bytes_column(value), words.share(value, made.rss),
                          meanings[name], end_section=number == len(rows) - 1)
    table.add_row("sum", f"{made.sum:,}", bytes_column(made.sum), words.share(made.sum, made.rss), "")
    table.add_row("Rss", f"{made.rss:,}", bytes_column(made.rss), "", "what the kernel counts, by smaps")
    table.add_row("difference", f"{made.difference:+,}", "", words.share(made.difference, made.rss),
                  "what changed while it was read")
    console.print()
    console.print(table)
    console.print()
    if made.estimated:
        console.print(f"HAKMEM's parts are estimates: {made.estimated}.")
    if made.rss_before != made.rss_after or made.moving:
        console.print(f"The process changes: Rss was {bytes_column(made.rss_before)} just before its pages were read "
                      f"and {bytes_column(made.rss_after)} just after, in the stillest of {made.looks} looks.")
    if made.heap_drift:
        console.print(f"Parts of its heap changed by up to {bytes_column(made.heap_drift)} meanwhile.")
    if made.moving:
        console.print(
            "That is more than one percent: the process changes too fast. Look again, or stop it meanwhile "
            "(kill -STOP).")
    if made.waiting and made.departure:
        console.print(f"{bytes_column(made.waiting)} wait. {made.departure.text()}")
    if made.swap:
        console.print(f"Swapped out, and not in the above: {bytes_column(made.swap)}.")
    console.print(f"Of all, {bytes_column(made.huge_pages)} lie on anonymous huge pages.")
