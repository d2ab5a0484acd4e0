"""Tables of a sample: their columns, their rows as values to sort by, and each value's text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from hakmem.compat import zip_strict
from hakmem.live.model import ACTIVE, DIRTY, GUARD, TIERS, UNTOUCHED, WARM, Slab
from hakmem.units import bytes_column, bytes_text

if TYPE_CHECKING:
    from hakmem.live.sample import Sample

# The most rows of a table: the first in its order.
ROWS_MOST = 400


Cell = Union[str, int, float, None]
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column. kind: words, a number, bytes, an address, an id, or a share of 1."""

    title: str
    kind: str = "number"


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


def classes(sample: Sample) -> Table:
    """Returns the table of size classes."""
    columns = [Column("block size"), Column("class"), Column("slabs"), Column("live"), Column("cached"),
               Column("free"), Column("live bytes", "bytes"), Column("cached bytes", "bytes"),
               Column("free bytes", "bytes"), Column("used", "share")]
    rows = [(row.block_size, row.class_id, row.slabs, row.live_blocks, row.cached_blocks, row.free_blocks,
             row.live_bytes, row.cached_bytes, row.free_bytes,
             share(row.live_blocks, row.live_blocks + row.cached_blocks + row.free_blocks))
            for row in sample.shot.classes]
    return Table("classes", "Classes", columns, rows, [row.class_id for row in sample.shot.classes], order=6)


def threads(sample: Sample) -> Table:
    """Returns the table of threads and heaps."""
    counters = ("refills", "flushes", "slabs_carved", "remote_blocks")
    columns = [Column("heap"), Column("thread", "words"), Column("tid", "id"), Column("state", "words"),
               Column("slabs"), Column("slab bytes", "bytes"), Column("live bytes", "bytes"),
               Column("cached bytes", "bytes"), Column("warm"), Column("pending"), Column("refills"), Column("flushes"),
               Column("carved"), Column("remote frees")]
    kept = [row for row in sample.shot.threads if row.state != "unused"]
    rows = [(row.heap, row.name or row.kind.replace("_", "-"), row.tid, row.state, row.slabs, row.slab_bytes,
             row.live_bytes, row.cached_bytes, row.warm_slabs, row.pending_slabs,
             *(row.counters.get(name) for name in counters)) for row in kept]
    return Table("threads", "Threads and heaps", columns, rows, [row.heap for row in kept], order=6, names=(0, 1))


def pools(sample: Sample) -> Table:
    """Returns the table of SuperSlabs by tier."""
    columns = [Column("tier", "words"), Column("SuperSlabs"), Column("active units"), Column("warm"), Column("dirty"),
               Column("untouched"), Column("guard units"), Column("memory", "bytes"), Column("used", "share")]
    unit, rows = sample.shot.unit_size, []
    for row in sample.shot.pools:
        units = row.active_units + row.warm_units + row.dirty_units + row.untouched_units
        rows.append((row.tier, row.superslabs, row.active_units, row.warm_units, row.dirty_units, row.untouched_units,
                     row.guard_units, units * unit, share(row.active_units, units)))
    return Table("pools", "Pools: SuperSlabs by how full they are", columns, rows,
                 [row.tier for row in sample.shot.pools], order=1)


def superslabs(sample: Sample) -> Table:
    """Returns the table of SuperSlabs."""
    units = sample.shot.units
    columns = [Column("number"), Column("address", "address"), Column("tier", "words"), Column("huge pages", "words"),
               Column("active units"), Column("warm"), Column("dirty"), Column("untouched"), Column("guard units"),
               Column("resident", "bytes"), Column("used", "share")]
    sizes, unit = sample.shot.block_sizes, sample.shot.unit_size
    rows, keys = [], []
    for row in units.present:
        used = sum(slab.used * sizes[slab.class_id] for slab in units.by_row[row])
        most = sample.shot.superslab_size - unit - units.state[row].count(GUARD, 1) * unit
        rows.append((units.number[row], units.address[row], TIERS[units.tier[row]],
                     "yes" if units.huge_pages[row] else "no",
                     *(units.state[row].count(state, 1) for state in (ACTIVE, WARM, DIRTY, UNTOUCHED, GUARD)),
                     sample.resident.superslabs[row], share(used, most)))
        keys.append(units.number[row])
    return Table("superslabs", "SuperSlabs", columns, rows, keys, order=8)


def huge(sample: Sample) -> Table:
    """Returns the table of huge blocks."""
    columns = [Column("address", "address"), Column("bytes", "bytes"), Column("state", "words"), Column("heap")]
    rows = [(row.address, row.bytes, "live" if row.live else "kept", row.heap) for row in sample.shot.huge]
    return Table("huge", "Huge blocks, above 1 MiB", columns, rows, [row.address for row in sample.shot.huge], order=1)


VIEWS = {"classes": classes, "threads": threads, "pools": pools, "superslabs": superslabs, "huge": huge}


# ---- Drilling ----


def slabs(sample: Sample, chosen: Callable[[Slab], bool],
          key: Callable[[Slab], int]) -> list[tuple[int, int, int, int, int]]:
    """Returns [(key(slab), slabs, blocks, used, cached)] for the slabs that chosen(slab) accepts, by key."""
    found: dict[int, list[int]] = {}
    for slab in sample.shot.units.slabs:
        if chosen(slab):
            sums = found.setdefault(key(slab), [0, 0, 0, 0])
            for place, value in enumerate((1, sample.shot.class_blocks[slab.class_id], slab.used, slab.cached)):
                sums[place] += value
    return [(group, count, blocks, used, cached) for group, (count, blocks, used, cached) in sorted(found.items())]


def class_slabs(sample: Sample, class_id: int) -> Table:
    """Returns the table of one class's slabs, by owning heap."""
    size = sample.shot.block_sizes[class_id]
    heaps = {row.heap: row for row in sample.shot.threads}
    columns = [Column("heap"), Column("thread", "words"), Column("state", "words"), Column("slabs"), Column("live"),
               Column("cached"), Column("free"), Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for heap, count, blocks, used, cached in slabs(
            sample, lambda slab: slab.class_id == class_id, lambda slab: slab.owner):
        about = heaps.get(heap)
        name = about.name or about.kind.replace("_", "-") if about else "nobody"
        rows.append((heap or None, name, about.state if about else "-", count, used - cached, cached, blocks - used,
                     (used - cached) * size, share(used - cached, blocks)))
    return Table("class_slabs", f"Slabs of {bytes_text(size)} blocks (class {class_id}) by thread", columns, rows,
                 [row[0] for row in rows], order=3, names=(0, 1))


def thread_classes(sample: Sample, heap: int) -> Table:
    """Returns the table of one heap's slabs, by class."""
    columns = [Column("block size"), Column("class"), Column("slabs"), Column("live"), Column("cached"), Column("free"),
               Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for class_id, count, blocks, used, cached in slabs(
            sample, lambda slab: slab.owner == heap, lambda slab: slab.class_id):
        size = sample.shot.block_sizes[class_id]
        rows.append((size, class_id, count, used - cached, cached, blocks - used, (used - cached) * size,
                     share(used - cached, blocks)))
    name = next((row.name or row.kind.replace("_", "-") for row in sample.shot.threads if row.heap == heap), "")
    return Table("thread_classes", f"Classes in the slabs of heap {heap} ({name})", columns, rows,
                 [row[1] for row in rows], order=6)


DRILLS = {"classes": class_slabs, "threads": thread_classes}
