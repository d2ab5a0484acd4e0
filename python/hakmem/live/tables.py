"""A snapshot as tables in the terminal."""

import numpy
from rich.table import Table

from hakmem.live import words
from hakmem.live.model import ACTIVE, DIRTY, TIERS, UNTOUCHED, WARM

HEAP_KINDS = {"house": "house heap", "first_class": "first-class heap", "profile": "heap profile"}


def print_snapshot(console, shot, superslabs=False):
    """Totals, pools, classes, threads, SuperSlabs by tier or each, counters."""
    console.print(f"[bold]{words.heading(shot)}[/]")
    for table in (totals(shot), block_pools(shot), classes(shot), threads(shot), pools(shot),
                  *([each_superslab(shot)] if superslabs else []), counters(shot)):
        if table.row_count:
            console.print()
            console.print(table)


def new_table(title, *columns):
    """A table whose columns are names; those that begin with < are text."""
    table = Table(title=title, box=None, header_style="bold", title_justify="left", title_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name.removeprefix("<"), justify="left" if name.startswith("<") else "right",
                         no_wrap=not name.startswith("<"), overflow="fold")
    return table


def totals(shot):
    table, whole = new_table("Memory", "<", "bytes", "", "of mapped", "<what it is"), shot.totals.mapped
    for name, meaning in {**words.PARTS, **words.OTHER_TOTALS}.items():
        value = getattr(shot.totals, name)
        table.add_row(name.replace("_", " "), f"{value:,}", words.size(value), words.share(value, whole), meaning,
                      end_section=name == "metadata")
    return table


def classes(shot):
    table = new_table("Size classes", "block", "slabs", "live", "cached", "free", "live bytes", "cached bytes", "free bytes")
    for row in shot.classes:
        table.add_row(f"{row.block_size:,}", f"{row.slabs:,}", f"{row.live_blocks:,}", f"{row.cached_blocks:,}",
                      f"{row.free_blocks:,}", words.size(row.live_bytes), words.size(row.cached_bytes),
                      words.size(row.free_bytes))
    return table


def block_pools(shot):
    table = new_table("Pools", "<pool", "slabs", "their bytes", "live", "cached", "free", "live bytes", "cached bytes",
                      "free bytes")
    for row in shot.block_pools:
        if row.slab_bytes:
            table.add_row(row.name, f"{row.slabs:,}", words.size(row.slab_bytes), f"{row.live_blocks:,}",
                          f"{row.cached_blocks:,}", f"{row.free_blocks:,}", words.size(row.live_bytes),
                          words.size(row.cached_bytes),
                          words.size(row.free_bytes))
    return table


def each_superslab(shot):
    table = new_table("SuperSlabs", "number", "<address", "<tier", "units active", "warm", "free, dirty",
                      "free, untouched", "live", "cached", "classes", "<huge pages")
    units = shot.units
    live = numpy.array(shot.block_sizes)[units.class_id] * (units.used - units.cached)
    cached = numpy.array(shot.block_sizes)[units.class_id] * units.cached
    for row in range(len(units.number)):
        state = units.state[row, 1:]
        table.add_row(f"{units.number[row]}", f"{units.address[row]:#x}", TIERS[units.tier[row]],
                      *(str(int((state == kind).sum())) for kind in (ACTIVE, WARM, DIRTY, UNTOUCHED)),
                      words.size(int(live[row].sum())), words.size(int(cached[row].sum())),
                      str(len(numpy.unique(units.class_id[row][units.class_id[row] > 0]))),
                      "yes" if units.huge_pages[row] else "no")
    return table


def threads(shot):
    table = new_table("Threads and heaps", "heap", "<thread", "<state", "slabs", "live", "cached", "warm", "pending",
                      "refills", "flushes", "remote")
    for row in shot.threads:
        who = f"{row.tid} {row.name}" if row.tid else HEAP_KINDS.get(row.kind, "no thread")
        table.add_row(str(row.heap), who, row.state, f"{row.slabs:,}", words.size(row.live_bytes),
                      words.size(row.cached_bytes), str(row.warm_slabs), str(row.pending_slabs),
                      *(f"{row.counters[name]:,}" for name in ("refills", "flushes", "remote_blocks")))
    return table


def pools(shot):
    table = new_table("SuperSlabs by tier", "<tier", "number", "units active", "warm", "free, dirty", "free, untouched")
    for row in shot.pools:
        if row.superslabs:
            table.add_row(row.tier, f"{row.superslabs:,}", f"{row.active_units:,}", f"{row.warm_units:,}",
                          f"{row.dirty_units:,}", f"{row.untouched_units:,}")
    live = [block for block in shot.huge if block.live]
    if shot.huge:
        table.caption = (f"{len(live)} huge blocks ({words.size(shot.totals.huge_live)}), {len(shot.huge) - len(live)} "
                         f"freed ranges kept ({words.size(shot.totals.huge_cached)})")
        table.caption_justify = "left"
    return table


def counters(shot):
    table = new_table("Counters", "<", "since the start")
    for name, value in shot.counters.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table
