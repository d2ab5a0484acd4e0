"""Tables of a snapshot: their columns, their rows as values to sort by, and each value's text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from hakmem.compat import zip_strict
from hakmem.live import hits
from hakmem.live.model import ACTIVE, DIRTY, GUARD, TIERS, UNTOUCHED, WARM, BlockPool, SizeClass, Slab, Snapshot
from hakmem.units import bytes_column, bytes_text

# The most rows of a table: the first in its order.
ROWS_MOST = 400


Cell = Union[str, int, float, None]
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column. kind: words, a number, bytes, an address, an id, or a share of 1. spare: a narrow terminal leaves out
    the columns with the greatest number first; 0: never."""

    title: str
    kind: str = "number"
    spare: int = 0


@dataclass
class Table:
    """Rows of values. keys: identify the same rows in the tables of two samples."""

    name: str
    title: str
    columns: list[Column]
    rows: Sequence[Row]
    keys: Sequence[Hashable]
    order: int = 0  # the column that it is sorted by if nobody says otherwise
    names: tuple[int, ...] = (0,)  # the columns that tell its rows apart

    def sorted(self, column: int | None = None, descending: bool | None = None) -> list[tuple[Hashable, Row]]:
        """Returns [(key, row)] sorted by a column. None is the least value. Numbers descend by default."""
        column = self.order if column is None else min(column, len(self.columns) - 1)
        if descending is None:
            descending = self.columns[column].kind not in ("words", "address")

        def value(pair: tuple[Hashable, Row]) -> tuple[bool, Any]:
            return (pair[1][column] is not None, pair[1][column])

        try:
            return sorted(zip_strict(self.keys, self.rows), key=value, reverse=descending)
        except TypeError as error:
            raise TypeError(f"{self.name}: column {self.columns[column].title} mixes kinds") from error


    def fitting(self, widths: Sequence[int], room: int, column: int) -> list[int]:
        """Returns the columns to show: the names and the column that it is sorted by, and of the others, in their
        order, those for which there is room. widths: of all columns."""
        shown = {*self.names, column}
        left = room - sum(widths[place] for place in shown)
        for place, width in enumerate(widths):
            if place not in shown and width <= left:
                shown.add(place)
                left -= width
        return sorted(shown)


def value_text(value: Cell, kind: str) -> str:
    """Returns a value's text in a column of a kind."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if kind == "bytes":
        return bytes_column(value)
    if kind == "address":
        return f"{value:#x}"
    if kind == "share":
        return f"{value:.1%}"
    return f"{value:,}" if kind == "number" else str(value)


def share(part: float, whole: float) -> float | None:
    """Returns a part as a share of 1; None of nothing."""
    return part / whole if whole else None


def blocks_columns() -> list[Column]:
    """Returns the columns of a table of blocks. A narrow terminal leaves out the numbers of blocks before the bytes."""
    return [Column("live", spare=6), Column("cached", spare=7), Column("free", spare=8),
            Column("live bytes", "bytes"), Column("cached bytes", "bytes", 2), Column("free bytes", "bytes", 1),
            Column("used", "share", 9)]


def blocks_cells(row: SizeClass | BlockPool) -> Row:
    """Returns the cells of these columns."""
    return (row.live_blocks, row.cached_blocks, row.free_blocks, row.live_bytes, row.cached_bytes, row.free_bytes,
            share(row.live_blocks, row.live_blocks + row.cached_blocks + row.free_blocks))


def classes(shot: Snapshot) -> Table:
    """Returns the table of size classes."""
    counted = "malloc_hits" in shot.counters
    columns = [Column("block size"), Column("class", spare=10), Column("slabs"), *blocks_columns(),
               *([Column("malloc hits", "share", 11), Column("free hits", "share", 12)] if counted else [])]
    rows = [(row.block_size, row.class_id, row.slabs, *blocks_cells(row),
             *((rate(hits.of_mallocs(row.counters)), rate(hits.of_frees(row.counters))) if counted else ()))
            for row in shot.classes]
    return Table("classes", "Classes", columns, rows, [row.class_id for row in shot.classes], order=6)


def rate(part: hits.Part | None) -> float | None:
    """Returns the share of hits; None of nothing."""
    return part.rate if part else None


def parts(shot: Snapshot) -> Table:
    """Returns the table of hits by part."""
    columns = [Column("part", "words"), Column("hits"), Column("misses"), Column("rate", "share"),
               Column("what it counts", "words", 1)]
    rows = [(part.name, part.hits, part.misses, part.rate, part.meaning) for part in hits.parts(shot)]
    title = "Hits by part" + ("" if "malloc_hits" in shot.counters
                              else "; HAKMEM_FRONT_STATS=1 counts the caches'")
    return Table("parts", title, columns, rows, [row[0] for row in rows], order=1)


def kinds(shot: Snapshot) -> Table:
    """Returns the table of kinds of memory."""
    columns = [Column("pool", "words"), Column("slabs"), Column("their bytes", "bytes", 5), *blocks_columns()]
    kept = [row for row in shot.block_pools if row.slab_bytes]
    rows = [(row.name, row.slabs, row.slab_bytes, *blocks_cells(row)) for row in kept]
    return Table("kinds", "Pools", columns, rows, [row.name for row in kept], order=2)


def threads(shot: Snapshot) -> Table:
    """Returns the table of threads and heaps."""
    columns = [Column("heap"), Column("thread", "words"), Column("tid", "id", 8), Column("state", "words"),
               Column("slabs", spare=3), Column("slab bytes", "bytes", 9), Column("live bytes", "bytes"),
               Column("cached bytes", "bytes", 2), Column("warm", spare=7), Column("pending", spare=10),
               Column("refills", spare=4), Column("flushes", spare=6), Column("carved", spare=11),
               Column("remote frees", spare=5)]
    kept = [row for row in shot.threads if row.state != "unused"]
    rows = [(row.heap, row.name or row.kind.replace("_", "-"), row.tid, row.state, row.slabs, row.slab_bytes,
             row.live_bytes, row.cached_bytes, row.warm_slabs, row.pending_slabs,
             *(row.counters.get(name) for name in ("refills", "flushes", "slabs_carved", "remote_blocks")))
            for row in kept]
    return Table("threads", "Threads and heaps", columns, rows, [row.heap for row in kept], order=6, names=(0, 1))


UNITS = [Column("active units"), Column("warm", spare=3), Column("dirty", spare=1), Column("untouched", spare=2),
         Column("guard units", spare=7)]


def pools(shot: Snapshot) -> Table:
    """Returns the table of SuperSlabs by tier."""
    columns = [Column("tier", "words"), Column("SuperSlabs"), *UNITS, Column("memory", "bytes", 4),
               Column("used", "share", 5)]
    rows = []
    for row in shot.pools:
        units = row.active_units + row.warm_units + row.dirty_units + row.untouched_units
        rows.append((row.tier, row.superslabs, row.active_units, row.warm_units, row.dirty_units, row.untouched_units,
                     row.guard_units, units * shot.unit_size, share(row.active_units, units)))
    return Table("pools", "SuperSlabs by how full they are", columns, rows,
                 [row.tier for row in shot.pools], order=1)


def superslabs(shot: Snapshot, resident: Sequence[int] | None = None) -> Table:
    """Returns the table of SuperSlabs. resident: the bytes of each that are in memory."""
    units = shot.units
    columns = [Column("number"), Column("address", "address"), Column("tier", "words"), *UNITS,
               *([] if resident is None else [Column("resident", "bytes")]), Column("live bytes", "bytes"),
               Column("cached bytes", "bytes", 4), Column("used", "share", 6), Column("classes", spare=8),
               Column("huge pages", "words", 5)]
    sizes, unit = shot.block_sizes, shot.unit_size
    rows, keys = [], []
    for row in units.present:
        slabs = units.by_row[row]
        live = sum((slab.used - slab.cached) * sizes[slab.class_id] for slab in slabs)
        cached = sum(slab.cached * sizes[slab.class_id] for slab in slabs)
        most = shot.superslab_size - unit - units.state[row].count(GUARD, 1) * unit
        rows.append((units.number[row], units.address[row], TIERS[units.tier[row]],
                     *(units.state[row].count(state, 1) for state in (ACTIVE, WARM, DIRTY, UNTOUCHED, GUARD)),
                     *([] if resident is None else [resident[row]]), live, cached, share(live + cached, most),
                     len({slab.class_id for slab in slabs}), "yes" if units.huge_pages[row] else "no"))
        keys.append(units.number[row])
    return Table("superslabs", "SuperSlabs", columns, rows, keys, order=8)


def huge(shot: Snapshot) -> Table:
    """Returns the table of huge blocks."""
    columns = [Column("address", "address"), Column("bytes", "bytes"), Column("state", "words"), Column("heap")]
    rows = [(row.address, row.bytes, "live" if row.live else "kept", row.heap) for row in shot.huge]
    return Table("huge", "Huge blocks, above 1 MiB", columns, rows, [row.address for row in shot.huge], order=1)


VIEWS = ("classes", "threads", "pools", "superslabs", "huge", "parts")


def view(name: str, shot: Snapshot, resident: Sequence[int]) -> Table:
    """Returns the table of one of VIEWS. resident: the bytes of each SuperSlab that are in memory."""
    if name == "superslabs":
        return superslabs(shot, resident)
    return {"classes": classes, "threads": threads, "pools": pools, "huge": huge, "parts": parts}[name](shot)


# ---- Drilling ----


def slabs(shot: Snapshot, chosen: Callable[[Slab], bool],
          key: Callable[[Slab], int]) -> list[tuple[int, int, int, int, int]]:
    """Returns [(key(slab), slabs, blocks, used, cached)] for the slabs that chosen(slab) accepts, by key."""
    found: dict[int, list[int]] = {}
    for slab in shot.units.slabs:
        if chosen(slab):
            sums = found.setdefault(key(slab), [0, 0, 0, 0])
            for place, value in enumerate((1, shot.class_blocks[slab.class_id], slab.used, slab.cached)):
                sums[place] += value
    return [(group, count, blocks, used, cached) for group, (count, blocks, used, cached) in sorted(found.items())]


def class_slabs(shot: Snapshot, class_id: int) -> Table:
    """Returns the table of one class's slabs, by owning heap."""
    size = shot.block_sizes[class_id]
    heaps = {row.heap: row for row in shot.threads}
    columns = [Column("heap"), Column("thread", "words"), Column("state", "words"), Column("slabs"), Column("live"),
               Column("cached"), Column("free"), Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for heap, count, blocks, used, cached in slabs(
            shot, lambda slab: slab.class_id == class_id, lambda slab: slab.owner):
        about = heaps.get(heap)
        name = about.name or about.kind.replace("_", "-") if about else "nobody"
        rows.append((heap or None, name, about.state if about else "-", count, used - cached, cached, blocks - used,
                     (used - cached) * size, share(used - cached, blocks)))
    return Table("class_slabs", f"Slabs of {bytes_text(size)} blocks (class {class_id}) by thread", columns, rows,
                 [row[0] for row in rows], order=3, names=(0, 1))


def thread_classes(shot: Snapshot, heap: int) -> Table:
    """Returns the table of one heap's slabs, by class."""
    columns = [Column("block size"), Column("class"), Column("slabs"), Column("live"), Column("cached"), Column("free"),
               Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for class_id, count, blocks, used, cached in slabs(
            shot, lambda slab: slab.owner == heap, lambda slab: slab.class_id):
        size = shot.block_sizes[class_id]
        rows.append((size, class_id, count, used - cached, cached, blocks - used, (used - cached) * size,
                     share(used - cached, blocks)))
    name = next((row.name or row.kind.replace("_", "-") for row in shot.threads if row.heap == heap), "")
    return Table("thread_classes", f"Classes in the slabs of heap {heap} ({name})", columns, rows,
                 [row[1] for row in rows], order=6)


DRILLS = {"classes": class_slabs, "threads": thread_classes}
