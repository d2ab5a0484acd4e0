"""What each resident byte of a process is for: HAKMEM's parts page by page, everything else by kind of mapping."""

from bisect import bisect_right
from dataclasses import asdict, dataclass, field, replace

import numpy

from hakmem.live import words
from hakmem.live.descriptor import find
from hakmem.live.heap import HEADERS, snapshot
from hakmem.live.kinds import KINDS, kind_of_areas
from hakmem.live.model import ACTIVE, TIERS
from hakmem.live.moment import take_moment
from hakmem.live.pages import PAGE, USER_END, Area, Pagemap, PagemapError, read_areas
from hakmem.live.tables import new_table

GRANULE = 16  # block sizes are multiples of it
HEAP_PARTS = {
    "live": "blocks that the program holds",
    "cached": "blocks in thread caches",
    "fragmentation": "free bytes on pages that hold blocks too: they stay while those do",
    "free_in_slab": "whole free pages of slabs in use: they leave after the purge delay",
    "retained": "free units and huge ranges kept for reuse: they leave after the purge delay",
    "huge_pages": "unused, but on huge pages whose other parts are used",
    "metadata": "HAKMEM's own: headers, page map, caches, the heap profile's tables",
}
LIVE, CACHED, FREE = range(3)
# A process that changes by more than this part of its Rss while it is looked at is said to move.
MOVING = 0.01


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
    rss_after: int = 0  # just after; rss is the one of both that the sum comes nearer to
    looks: int = 1
    heap_drift: int = 0  # bytes by which a part of the heap changed from the first reading of it to the last, at most

    @property
    def sum(self):
        return sum(self.heap.values()) + sum(self.other.values())

    @property
    def difference(self):
        return self.sum - self.rss

    @property
    def moving(self):
        """Whether it changed so much that the sum misses Rss before or after by more than one percent."""
        return max(abs(self.sum - self.rss_before), abs(self.sum - self.rss_after)) > self.rss * MOVING


def explain_process(memory):
    """The Explanation of a process."""
    descriptor = find(memory)
    try:
        with Pagemap(memory.pid) as pagemap:
            moment = take_moment(memory, descriptor, pagemap)
    except PagemapError as error:
        return explain_by_proportion(memory, descriptor, str(error))
    made = explanation(memory, moment.shot, moment.areas, moment.rss)
    made.rss_before, made.rss_after, made.looks = moment.before, moment.after, moment.looks
    made.heap_drift = moment.drift
    claims = claims_of(moment.shot, moment.huge)
    made.heap = by_pages(memory, descriptor, moment, claims)
    pieces = outside(moment, claims)
    for piece, kind in zip(pieces, kind_of_areas(memory, pieces), strict=True):
        made.other[kind] += piece.rss
    # What was mapped after the mappings were read.
    made.other["other anonymous memory"] += moment.sweep.total + moment.odd - made.sum
    return made


def explanation(memory, shot, areas, rss):
    """An Explanation without parts."""
    return Explanation(memory.pid, words.heading(shot), rss, sum(area.swap for area in areas),
                       other=dict.fromkeys(KINDS, 0), huge_pages=sum(area.huge for area in areas), rss_before=rss,
                       rss_after=rss)


# ---- Who has which addresses ----

def claims_of(shot, huge):
    """Disjoint (start, end, part) of all that HAKMEM has mapped, by address; part None: a SuperSlab's.

    Huge blocks are told of several moments. Of two that lie on one another the earlier in the list is right, and what
    was a block at any of them is one: the ranges that are kept hold what is left.
    """
    wanted = [(address, address + size, "metadata") for address, size in shot.head_maps]
    wanted += [(address, address + shot.superslab_size, "metadata") for address in shot.metadata_slots]
    wanted += [(address, address + size, "metadata") for address, size in shot.profile_maps]
    wanted += [(int(address), int(address) + shot.superslab_size, None)
               for address in shot.units.address[~shot.units.decommitted]]
    wanted += [(block.address, block.address + block.bytes, "live") for block in huge if block.live]
    wanted += [(block.address, block.address + block.bytes, "retained") for block in huge if not block.live]
    starts, taken = [], []  # by address
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


def outside(moment, claims):
    """The mappings without the claims, as Areas whose Rss is counted. The kernel joins what lies side by side."""
    odd, pieces, first = {area.mapping.start: area for area in moment.areas if area.odd}, [], 0
    for mapping in moment.mappings:
        if mapping.start >= USER_END:
            continue  # the kernel's
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

def by_pages(memory, descriptor, moment, claims):
    """Resident bytes by HEAP_PARTS."""
    parts = dict.fromkeys(HEAP_PARTS, 0)
    for start, end, part in claims:
        if part:
            parts[part] += moment.sweep.bytes(start, end)
    for first in range(0, len(moment.shot.units.number), HEADERS):
        rows = numpy.arange(first, min(first + HEADERS, len(moment.shot.units.number)))
        superslab_pages(memory, descriptor, moment.shot, moment.sweep, rows, parts)
    return parts


def superslab_pages(memory, descriptor, shot, sweep, rows, parts):
    """Adds the pages of some SuperSlabs to the parts."""
    size, units, per_unit = shot.superslab_size, shot.units, shot.unit_size // PAGE
    resident = numpy.stack([sweep.count(int(units.address[row]), size) for row in rows]).reshape(len(rows), -1, per_unit)
    huge = numpy.stack([sweep.on_huge(int(units.address[row]), size).all() for row in rows])
    parts["metadata"] += int(resident[:, 0].sum()) * PAGE
    retained = (resident.sum(axis=2) * (units.first[rows] == 0))[:, 1:].sum(axis=1) * PAGE
    free = numpy.zeros(len(rows), "i8")
    for live, cached, pinned, whole, row in slab_pages(memory, descriptor, shot, rows, resident):
        parts["live"] += live
        parts["cached"] += cached
        parts["fragmentation"] += pinned
        numpy.add.at(free, row, whole)
    # What is unused on a huge page is there because of the rest of it, unless nothing of it is used.
    huge &= units.tier[rows] != TIERS.index("EMPTY")
    parts["huge_pages"] += int((retained + free)[huge].sum())
    parts["retained"] += int(retained[~huge].sum())
    parts["free_in_slab"] += int(free[~huge].sum())


def slab_pages(memory, descriptor, shot, rows, resident):
    """For each class in these SuperSlabs: resident bytes live, cached, free beside blocks; bytes of free pages by slab."""
    units, place = shot.units, descriptor.fields["superslab.slabs"]
    headers = memory.read_many([(int(units.address[row]) + place.offset, place.size * place.count) for row in rows])
    maps = numpy.frombuffer(b"".join(headers), descriptor.dtype("slab", "local", "remote")).reshape(len(rows), -1)
    columns = numpy.arange(units.state.shape[1])
    begins = (units.first[rows] == columns) & (units.state[rows] == ACTIVE)
    for class_id in numpy.unique(units.class_id[rows][begins]):
        row, unit = numpy.nonzero(begins & (units.class_id[rows] == class_id))
        found = maps[row, unit]
        bits = numpy.ascontiguousarray(found["local"] | found["remote"]).view("u1")
        free = numpy.unpackbits(bits, axis=1, bitorder="little")
        yield *class_pages(shot, int(class_id), rows[row], row, unit, free, resident), row


def class_pages(shot, class_id, superslab, row, unit, free, resident):
    """The same for the slabs of one class: their SuperSlabs' rows in the snapshot and in `resident`, and first units."""
    size, blocks = shot.block_sizes[class_id], shot.class_blocks[class_id]
    length = int((shot.units.first[superslab[0]] == unit[0]).sum())
    start = shot.units.address[superslab] + unit * shot.unit_size
    state = numpy.full((len(row), blocks + 1), FREE, "u1")  # the last stands for the slab's tail
    state[:, :blocks] = numpy.where(free[:, :blocks] != 0, FREE, LIVE)
    order = numpy.argsort(start)
    found = numpy.searchsorted(start[order], shot.cached_blocks.astype("i8"), "right") - 1
    slab = order[numpy.maximum(found, 0)]
    index = (shot.cached_blocks.astype("i8") - start[slab]) // size
    inside = (found >= 0) & (index >= 0) & (index < blocks)
    state[slab[inside], index[inside]] = CACHED
    granules = numpy.minimum(numpy.arange(length * shot.unit_size // GRANULE) * GRANULE // size, blocks)
    pages = state[:, granules].reshape(len(row), -1, PAGE // GRANULE)
    there = numpy.stack([resident[row, unit + part] for part in range(length)], axis=1).reshape(len(row), -1)
    live, cached = ((pages == kind).sum(axis=2) * GRANULE * there for kind in (LIVE, CACHED))
    unused = (PAGE - live - cached) * there
    pinned = unused * (live + cached > 0)
    return int(live.sum()), int(cached.sum()), int(pinned.sum()), (unused - pinned).sum(axis=1)


# ---- Without pages ----

def explain_by_proportion(memory, descriptor, why):
    """The Explanation where the kernel does not tell which pages are resident: by smaps, the heap's parts estimated."""
    shot, areas = snapshot(memory, descriptor), read_areas(memory)
    made = explanation(memory, shot, areas, sum(area.rss for area in areas))
    made.estimated = why
    claims, inside = claims_of(shot, shot.huge), 0
    for area, kind in zip(areas, kind_of_areas(memory, areas), strict=True):
        if any(start < area.mapping.end and end > area.mapping.start for start, end, _ in claims):
            inside += area.rss
        else:
            made.other[kind] += area.rss
    made.heap = by_proportion(shot, inside)
    return made


def by_proportion(shot, rss):
    """An estimate of the same: what is in use is resident first, then what is free in proportion to its size."""
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

def explanation_dict(made):
    return {**asdict(made), "sum": made.sum, "difference": made.difference, "moving": made.moving}


def print_explanation(console, made):
    console.print(f"[bold]{made.title}[/]")
    table = new_table("Resident memory", "<", "bytes", "", "of Rss", "<what it is")
    meanings = {**HEAP_PARTS, **KINDS}
    for rows in (made.heap, made.other):
        for number, (name, value) in enumerate(rows.items()):
            table.add_row(name.replace("_", " "), f"{value:,}", words.size(value), words.share(value, made.rss),
                          meanings[name], end_section=number == len(rows) - 1)
    table.add_row("sum", f"{made.sum:,}", words.size(made.sum), words.share(made.sum, made.rss), "")
    table.add_row("Rss", f"{made.rss:,}", words.size(made.rss), "", "what the kernel counts, by smaps")
    table.add_row("difference", f"{made.difference:+,}", "", words.share(made.difference, made.rss),
                  "what changed while it was read")
    console.print()
    console.print(table)
    console.print()
    if made.estimated:
        console.print(f"HAKMEM's parts are estimates: {made.estimated}.")
    if made.rss_before != made.rss_after or made.moving:
        console.print(f"It changes: Rss was {words.size(made.rss_before)} just before its pages were read and "
                      f"{words.size(made.rss_after)} just after, in the stillest of {made.looks} looks.")
    if made.heap_drift:
        console.print(f"Parts of its heap changed by up to {words.size(made.heap_drift)} meanwhile.")
    if made.moving:
        console.print("That is more than one percent: it moves too fast to be caught at one moment. Look again, or stop "
                      "it meanwhile (kill -STOP).")
    if made.swap:
        console.print(f"Swapped out, and not in the above: {words.size(made.swap)}.")
    console.print(f"Of all, {words.size(made.huge_pages)} lie on anonymous huge pages.")
