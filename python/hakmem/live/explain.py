"""What each resident byte of a process is for: HAKMEM's parts page by page, everything else by kind of mapping."""

from dataclasses import asdict, dataclass, field, replace

import numpy

from hakmem.live import words
from hakmem.live.descriptor import find
from hakmem.live.heap import HEADERS, snapshot
from hakmem.live.kinds import KINDS, kind_of_areas
from hakmem.live.memory import LiveError
from hakmem.live.model import ACTIVE, TIERS
from hakmem.live.pages import PAGE, Area, Pagemap, read_areas
from hakmem.live.tables import new_table

GRANULE = 16  # block sizes are multiples of it
HEAP_PARTS = {
    "live": "blocks that the program holds",
    "cached": "blocks in thread caches",
    "fragmentation": "free bytes on pages that hold blocks too: they stay while those do",
    "free_in_slab": "whole free pages of slabs in use: they leave after the purge delay",
    "retained": "free units and huge ranges kept for reuse: they leave after the purge delay",
    "huge_pages": "unused, but on huge pages whose other parts are used",
    "metadata": "HAKMEM's own: headers, page map, caches",
}
LIVE, CACHED, FREE = range(3)


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

    @property
    def sum(self):
        return sum(self.heap.values()) + sum(self.other.values())

    @property
    def difference(self):
        return self.sum - self.rss


def explain_process(memory):
    """The Explanation of a process."""
    descriptor = find(memory)
    shot = snapshot(memory, descriptor)
    areas = read_areas(memory)
    ranges = heap_ranges(shot)
    made = Explanation(memory.pid, words.heading(shot), sum(area.rss for area in areas), sum(area.swap for area in areas),
                       huge_pages=sum(area.huge for area in areas))
    inside = [area for area in areas if overlap(area.mapping, ranges)]
    pieces = outside(areas, ranges)
    try:
        with Pagemap(memory.pid) as pagemap:
            count = pagemap.counter(inside)
            made.heap = by_pages(memory, descriptor, shot, pagemap, count)
            for piece in pieces:
                if piece.rss is None:
                    piece.rss = int(count(piece.mapping.start, piece.mapping.size).sum()) * PAGE
    except LiveError as error:
        made.estimated = str(error)
        made.heap = by_proportion(shot, sum(area.rss for area in inside))
    made.other = dict.fromkeys(KINDS, 0)
    for piece, kind in zip(pieces, kind_of_areas(memory, pieces), strict=True):
        made.other[kind] += piece.rss or 0
    return made


def heap_ranges(shot):
    """(start, end) of all that HAKMEM has mapped, by address."""
    window, head = shot.head
    slots = [(window, window + head)] if head else []
    slots += [(address, address + shot.superslab_size) for address in shot.metadata_slots]
    slots += [(int(address), int(address) + shot.superslab_size) for address in shot.units.address]
    return sorted(slots + [(block.address, block.address + block.bytes) for block in shot.huge])


def overlap(mapping, ranges):
    """Bytes of the mapping within the ranges."""
    return sum(max(0, min(mapping.end, end) - max(mapping.start, start)) for start, end in ranges
               if start < mapping.end and end > mapping.start)


def outside(areas, ranges):
    """The areas without the ranges. The kernel joins what lies side by side: of a part, Rss is still to be counted."""
    pieces = []
    for area in areas:
        mapping = area.mapping
        mine = [one for one in ranges if one[0] < mapping.end and one[1] > mapping.start]
        if not mine:
            pieces.append(area)
            continue
        at = mapping.start
        for start, end in [*mine, (mapping.end, mapping.end)]:
            if start > at:
                pieces.append(Area(replace(mapping, start=at, end=start), None))
            at = max(at, end)
    return pieces


# ---- By pages ----

def by_pages(memory, descriptor, shot, pagemap, count):
    """Resident bytes by HEAP_PARTS."""
    parts = dict.fromkeys(HEAP_PARTS, 0)
    window, head = shot.head
    for start, size in [(window, head), *((address, shot.superslab_size) for address in shot.metadata_slots)]:
        parts["metadata"] += int(count(start, size).sum()) * PAGE
    for block in shot.huge:
        parts["live" if block.live else "retained"] += int(count(block.address, block.bytes).sum()) * PAGE
    for first in range(0, len(shot.units.number), HEADERS):
        rows = numpy.arange(first, min(first + HEADERS, len(shot.units.number)))
        superslab_pages(memory, descriptor, shot, pagemap, count, rows, parts)
    return parts


def superslab_pages(memory, descriptor, shot, pagemap, count, rows, parts):
    """Adds the pages of some SuperSlabs to the parts."""
    size, units, per_unit = shot.superslab_size, shot.units, shot.unit_size // PAGE
    resident = numpy.stack([count(int(units.address[row]), size) for row in rows]).reshape(len(rows), -1, per_unit)
    huge = numpy.stack([pagemap.huge(int(units.address[row]), size).all() for row in rows])
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

def by_proportion(shot, rss):
    """An estimate of the same: what is in use is resident first, then what is free in proportion to its size."""
    totals, parts, left = shot.totals, dict.fromkeys(HEAP_PARTS, 0), rss
    headers = totals.metadata - shot.head[1]
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
    return {**asdict(made), "sum": made.sum, "difference": made.difference}


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
    if made.swap:
        console.print(f"Swapped out, and not in the above: {words.size(made.swap)}.")
    console.print(f"Of all, {words.size(made.huge_pages)} lie on anonymous huge pages.")
