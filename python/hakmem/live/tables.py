"""Prints a snapshot as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem.live import words
from hakmem.live.model import ACTIVE, DIRTY, GUARD, TIERS, UNTOUCHED, WARM, Snapshot
from hakmem.screen import Console, Table, Text
from hakmem.units import bytes_column

HEAP_KINDS = {"house": "house heap", "first_class": "first-class heap", "profile": "heap profile",
              "shared": "shared heap"}
# What a narrow terminal leaves out of a table of blocks: first the numbers of blocks, since the bytes say the same.
SPARE_OF_BLOCKS = ("free", "cached", "live", "their bytes", "cached bytes", "free bytes")


def print_snapshot(console: Console, shot: Snapshot, superslabs: bool = False) -> None:
    """Prints totals, pools, classes, threads, SuperSlabs by tier (or each of them) and counters."""
    console.print(Text(words.heading(shot), style="bold"))
    for table in (totals(shot), block_pools(shot), classes(shot), threads(shot), pools(shot),
                  *([each_superslab(shot)] if superslabs else []), counters(shot)):
        if table.row_count:
            console.print()
            console.print(table)


def new_table(title: str, *columns: str, spare: Sequence[str] = ()) -> Table:
    """Returns a table with these columns. A name that begins with < is a column of text. spare: the columns that a
    narrow terminal leaves out, the first one first."""
    table = Table(title)
    for name in columns:
        table.add_column(name.removeprefix("<"), justify="left" if name.startswith("<") else "right",
                         no_wrap=not name.startswith("<"),
                         spare=len(spare) - spare.index(name) if name in spare else 0)
    return table


def totals(shot: Snapshot) -> Table:
    """Returns the table of totals."""
    table = new_table("Memory", "<", "bytes", "", "of mapped", "<what it is", spare=("", "of mapped"))
    whole = shot.totals.mapped
    for name, meaning in {**words.PARTS, **words.OTHER_TOTALS}.items():
        value = getattr(shot.totals, name)
        table.add_row(name.replace("_", " "), f"{value:,}", bytes_column(value), words.share(value, whole), meaning,
                      end_section=name == "metadata")
    return table


def classes(shot: Snapshot) -> Table:
    """Returns the table of size classes."""
    table = new_table("Size classes", "block", "slabs", "live", "cached", "free", "live bytes", "cached bytes",
                      "free bytes", spare=SPARE_OF_BLOCKS)
    for row in shot.classes:
        table.add_row(f"{row.block_size:,}", f"{row.slabs:,}", f"{row.live_blocks:,}", f"{row.cached_blocks:,}",
                      f"{row.free_blocks:,}", bytes_column(row.live_bytes), bytes_column(row.cached_bytes),
                      bytes_column(row.free_bytes))
    return table


def block_pools(shot: Snapshot) -> Table:
    """Returns the table of kinds of memory."""
    table = new_table("Pools", "<pool", "slabs", "their bytes", "live", "cached", "free", "live bytes", "cached bytes",
                      "free bytes", spare=SPARE_OF_BLOCKS)
    for row in shot.block_pools:
        if row.slab_bytes:
            table.add_row(row.name, f"{row.slabs:,}", bytes_column(row.slab_bytes), f"{row.live_blocks:,}",
                          f"{row.cached_blocks:,}", f"{row.free_blocks:,}", bytes_column(row.live_bytes),
                          bytes_column(row.cached_bytes),
                          bytes_column(row.free_bytes))
    return table


def each_superslab(shot: Snapshot) -> Table:
    """Returns a table with a row for each SuperSlab."""
    table = new_table("SuperSlabs", "number", "<address", "<tier", "units active", "warm", "free, dirty",
                      "free, untouched", "guard units", "live", "cached", "classes", "<huge pages",
                      spare=("guard units", "classes", "<huge pages", "cached", "free, untouched", "free, dirty",
                             "warm"))
    units, sizes = shot.units, shot.block_sizes
    for row, number in enumerate(units.number):
        slabs, state = units.by_row[row], units.state[row]
        live = sum((slab.used - slab.cached) * sizes[slab.class_id] for slab in slabs)
        cached = sum(slab.cached * sizes[slab.class_id] for slab in slabs)
        table.add_row(f"{number}", f"{units.address[row]:#x}", TIERS[units.tier[row]],
                      *(str(state.count(kind, 1)) for kind in (ACTIVE, WARM, DIRTY, UNTOUCHED, GUARD)),
                      bytes_column(live), bytes_column(cached), str(len({slab.class_id for slab in slabs})),
                      "yes" if units.huge_pages[row] else "no")
    return table


def threads(shot: Snapshot) -> Table:
    """Returns the table of threads and heaps."""
    table = new_table("Threads and heaps", "heap", "<thread", "<state", "slabs", "live", "cached", "warm", "pending",
                      "refills", "flushes", "remote",
                      spare=("pending", "warm", "flushes", "remote", "refills", "slabs", "cached"))
    for row in shot.threads:
        who = f"{row.tid} {row.name}" if row.tid else HEAP_KINDS.get(row.kind, "no thread")
        table.add_row(str(row.heap), who, row.state, f"{row.slabs:,}", bytes_column(row.live_bytes),
                      bytes_column(row.cached_bytes), str(row.warm_slabs), str(row.pending_slabs),
                      *(f"{row.counters[name]:,}" for name in ("refills", "flushes", "remote_blocks")))
    return table


def pools(shot: Snapshot) -> Table:
    """Returns the table of SuperSlabs by tier."""
    table = new_table("SuperSlabs by tier", "<tier", "number", "units active", "warm", "free, dirty", "free, untouched",
                      "guard units", spare=("guard units", "warm", "free, untouched", "free, dirty"))
    for row in shot.pools:
        if row.superslabs:
            table.add_row(row.tier, f"{row.superslabs:,}", f"{row.active_units:,}", f"{row.warm_units:,}",
                          f"{row.dirty_units:,}", f"{row.untouched_units:,}", f"{row.guard_units:,}")
    live = [block for block in shot.huge if block.live]
    if shot.huge:
        table.caption = (f"{len(live)} huge blocks ({bytes_column(shot.totals.huge_live)}), "
                         f"{len(shot.huge) - len(live)} freed ranges kept ({bytes_column(shot.totals.huge_cached)})")
    return table


def counters(shot: Snapshot) -> Table:
    """Returns the table of counters."""
    table = new_table("Counters", "<", "since the start")
    for name, value in shot.counters.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table
