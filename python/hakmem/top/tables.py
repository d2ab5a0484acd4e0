"""Tables of a sample: their columns, their rows as values that sort, and the text of a value."""

from dataclasses import dataclass

import numpy

from hakmem.live.model import ACTIVE, DIRTY, TIERS, UNTOUCHED, WARM
from hakmem.top.words import bytes_text

# What a table of many rows shows of them: the first by its order.
ROWS_MOST = 400


@dataclass(frozen=True)
class Column:
    """A column: its title, and whether its values are words, a number, bytes, an address, an id, or a share of 1."""

    title: str
    kind: str = "number"


@dataclass
class Table:
    """Rows of values; keys tell the rows of two samples' tables as the same."""

    name: str
    title: str
    columns: list[Column]
    rows: list[tuple]
    keys: list
    order: int = 0  # the column that it is sorted by if nobody says otherwise

    def sorted(self, column=None, descending=None):
        """[(key, row)] by a column; None as the least. Numbers begin with the most unless told otherwise."""
        column = self.order if column is None else min(column, len(self.columns) - 1)
        if descending is None:
            descending = self.columns[column].kind not in ("words", "address")

        def value(pair):
            return (pair[1][column] is not None, pair[1][column])

        try:
            return sorted(zip(self.keys, self.rows, strict=True), key=value, reverse=descending)
        except TypeError as error:
            raise TypeError(f"{self.name}: column {self.columns[column].title} mixes kinds") from error


def value_text(value, kind):
    """The text of a value in a column of a kind."""
    if value is None:
        return "-"
    if kind == "bytes":
        return bytes_text(value)
    if kind == "address":
        return f"{value:#x}"
    if kind == "share":
        return f"{value:.1%}"
    return f"{value:,}" if kind == "number" else str(value)


def share(part, whole):
    return part / whole if whole else None


def classes(sample):
    columns = [Column("block size"), Column("class"), Column("slabs"), Column("live"), Column("cached"),
               Column("free"), Column("live bytes", "bytes"), Column("cached bytes", "bytes"),
               Column("free bytes", "bytes"), Column("used", "share")]
    rows = [(row.block_size, row.class_id, row.slabs, row.live_blocks, row.cached_blocks, row.free_blocks,
             row.live_bytes, row.cached_bytes, row.free_bytes,
             share(row.live_blocks, row.live_blocks + row.cached_blocks + row.free_blocks))
            for row in sample.shot.classes]
    return Table("classes", "Classes", columns, rows, [row.class_id for row in sample.shot.classes], order=6)


def threads(sample):
    counters = ("refills", "flushes", "slabs_carved", "remote_blocks")
    columns = [Column("heap"), Column("thread", "words"), Column("tid", "id"), Column("state", "words"),
               Column("slabs"), Column("slab bytes", "bytes"), Column("live bytes", "bytes"),
               Column("cached bytes", "bytes"), Column("warm"), Column("pending"), Column("refills"), Column("flushes"),
               Column("carved"), Column("remote frees")]
    kept = [row for row in sample.shot.threads if row.state != "unused"]
    rows = [(row.heap, row.name or row.kind.replace("_", "-"), row.tid, row.state, row.slabs, row.slab_bytes,
             row.live_bytes, row.cached_bytes, row.warm_slabs, row.pending_slabs,
             *(row.counters.get(name) for name in counters)) for row in kept]
    return Table("threads", "Threads and heaps", columns, rows, [row.heap for row in kept], order=6)


def pools(sample):
    columns = [Column("tier", "words"), Column("SuperSlabs"), Column("active units"), Column("warm"), Column("dirty"),
               Column("untouched"), Column("memory", "bytes"), Column("used", "share")]
    unit, rows = sample.shot.unit_size, []
    for row in sample.shot.pools:
        units = row.active_units + row.warm_units + row.dirty_units + row.untouched_units
        rows.append((row.tier, row.superslabs, row.active_units, row.warm_units, row.dirty_units, row.untouched_units,
                     units * unit, share(row.active_units, units)))
    return Table("pools", "Pools: SuperSlabs by how full they are", columns, rows,
                 [row.tier for row in sample.shot.pools], order=1)


def superslabs(sample):
    units = sample.shot.units
    columns = [Column("number"), Column("address", "address"), Column("tier", "words"), Column("huge pages", "words"),
               Column("active units"), Column("warm"), Column("dirty"), Column("untouched"),
               Column("resident", "bytes"), Column("used", "share")]
    states = [(units.state[:, 1:] == state).sum(axis=1) for state in (ACTIVE, WARM, DIRTY, UNTOUCHED)]
    block = numpy.array(sample.shot.block_sizes, "i8")[units.class_id]
    used = (units.used * block).sum(axis=1)
    most = (sample.shot.superslab_size - sample.shot.unit_size)
    rows, keys = [], []
    for row in numpy.flatnonzero(~units.decommitted):
        rows.append((int(units.number[row]), int(units.address[row]), TIERS[units.tier[row]],
                     "yes" if units.huge_pages[row] else "no", *(int(counts[row]) for counts in states),
                     int(sample.resident.superslabs[row]), share(int(used[row]), most)))
        keys.append(int(units.number[row]))
    return Table("superslabs", "SuperSlabs", columns, rows, keys, order=8)


def huge(sample):
    columns = [Column("address", "address"), Column("bytes", "bytes"), Column("state", "words"), Column("heap")]
    rows = [(row.address, row.bytes, "live" if row.live else "kept", row.heap) for row in sample.shot.huge]
    return Table("huge", "Huge blocks, above 1 MiB", columns, rows, [row.address for row in sample.shot.huge], order=1)


VIEWS = {"classes": classes, "threads": threads, "pools": pools, "superslabs": superslabs, "huge": huge}


# ---- Drilling ----


def slabs(sample, chosen, key):
    """[(key(class, owner), slabs, blocks, used, cached)] of the slabs for which chosen(class, owner) holds."""
    units = sample.shot.units
    begins = (units.first == numpy.arange(units.first.shape[1])) & (units.first > 0)
    class_id, owner = units.class_id[begins], units.owner[begins]
    mine = chosen(class_id, owner)
    group, used, cached = key(class_id, owner)[mine], units.used[begins][mine], units.cached[begins][mine]
    blocks = numpy.array(sample.shot.class_blocks, "i8")[class_id[mine]]
    found, place = numpy.unique(group, return_inverse=True)
    sums = [numpy.bincount(place, weights, len(found)).astype("i8").tolist()
            for weights in (numpy.ones(len(place)), blocks, used, cached)]
    return list(zip(found.tolist(), *sums, strict=True))


def class_slabs(sample, class_id):
    """The slabs of one class by the heap that owns them."""
    size = sample.shot.block_sizes[class_id]
    heaps = {row.heap: row for row in sample.shot.threads}
    columns = [Column("heap"), Column("thread", "words"), Column("state", "words"), Column("slabs"), Column("live"),
               Column("cached"), Column("free"), Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for heap, count, blocks, used, cached in slabs(sample, lambda kind, _: kind == class_id, lambda _, owner: owner):
        about = heaps.get(heap)
        name = about.name or about.kind.replace("_", "-") if about else "nobody"
        rows.append((heap or None, name, about.state if about else "-", count, used - cached, cached, blocks - used,
                     (used - cached) * size, share(used - cached, blocks)))
    return Table("class_slabs", f"Slabs of {bytes_text(size)} blocks (class {class_id}) by thread", columns, rows,
                 [row[0] for row in rows], order=3)


def thread_classes(sample, heap):
    """The classes of one heap's slabs."""
    columns = [Column("block size"), Column("class"), Column("slabs"), Column("live"), Column("cached"), Column("free"),
               Column("live bytes", "bytes"), Column("used", "share")]
    rows = []
    for class_id, count, blocks, used, cached in slabs(sample, lambda _, owner: owner == heap, lambda kind, _: kind):
        size = sample.shot.block_sizes[class_id]
        rows.append((size, class_id, count, used - cached, cached, blocks - used, (used - cached) * size,
                     share(used - cached, blocks)))
    name = next((row.name or row.kind.replace("_", "-") for row in sample.shot.threads if row.heap == heap), "")
    return Table("thread_classes", f"Classes in the slabs of heap {heap} ({name})", columns, rows,
                 [row[1] for row in rows], order=6)


DRILLS = {"classes": class_slabs, "threads": thread_classes}
