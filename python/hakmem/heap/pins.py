"""Shows whose blocks keep free memory resident, and what would give it back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hakmem.heap.interval import Intervals, error_text
from hakmem.heap.show import value_text
from hakmem.heap.sites import Site, order, sites_of
from hakmem.heap.why import place_of, sentences
from hakmem.live import words
from hakmem.live.show import new_table
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap
    from hakmem.live.why import Why
    from hakmem.screen import Console

# Sites for which a heap of their own is proposed, and the least part of all that is kept for any proposal.
HEAPS_SHOWN, WORTH = 3, 0.05
OWN_HEAP = ("would leave if {site} had taken its blocks from a heap of their own (hak_heap_new), or before the blocks "
            "that are gone: then they would lie side by side")
TRIM = "would leave by malloc_trim(0), which splits huge pages that are partly used; HAKMEM_THP=never has none"
FLUSH = "would leave by hak_thread_idle() in threads that wait: it is in their caches; HAKMEM_CACHE_BYTES limits these"
WAITS = "would leave by malloc_trim(0): nothing keeps it, and it waits to be used again"


@dataclass
class Help:
    """A proposal, and how many resident bytes it would give back."""

    name: str  # heap, trim, flush or waits
    site: str
    bytes: int
    error: int
    action: str


def sites_in(found: Heap, by: str = "flat", lines: bool = False) -> list[Site]:
    """Returns the sites that keep memory, most first. by: flat or cum."""
    place = found.index("kept_space")
    return [site for site in order(sites_of(found, lines), place, by, False)
            if (site.flat if by == "flat" else site.cum)[place]]


def helps_of(why: Why, found: Heap | None) -> list[Help]:
    """Returns what would help, most first. found: all stacks."""
    helps, parts = [], why.explanation.heap
    whole = why.kept.bytes + why.kept_by_caches.bytes
    if found is not None:
        kept, huge = (found.index(name) for name in ("kept_space", "kept_huge_space"))
        for site in sites_in(found)[:HEAPS_SHOWN]:
            own, error = site.flat[kept] - site.flat[huge], round(site.errors(Intervals(found), kept)[0])
            if own > max(WORTH * whole, error):
                helps.append(Help("heap", site.name, own, error, OWN_HEAP.format(site=site.name)))
    cached = round(why.kept_by_caches.bytes) + parts["cached"]
    waits = parts["retained"] + parts["free_in_slab"]
    helps += [Help("trim", "", round(why.kept.huge), 0, TRIM), Help("flush", "", cached, 0, FLUSH),
              Help("waits", "", waits, 0, WAITS)]
    return sorted((one for one in helps if one.bytes > WORTH * (whole + waits)), key=lambda one: -one.bytes)


def unnamed_of(why: Why) -> list[tuple[str, int]]:
    """Returns [(whose, bytes)] for kept bytes that belong to no site."""
    return [(name, round(value)) for name, value in (
        ("blocks of which none is a sample", why.kept.bytes - why.total.kept.bytes),
        ("blocks in thread caches alone", why.kept_by_caches.bytes)) if round(value) > 0]


def as_data(why: Why, found: Heap | None, whole: Heap | None, lines: bool) -> dict[str, object]:
    """Returns everything for JSON. found: the stacks selected from `whole`."""
    rows: list[dict[str, object]] = []
    if found is not None:
        names, intervals = [name for name, _ in found.types], Intervals(found)
        kept, huge, headers, blocks, in_use = map(names.index, (
            "kept_space", "kept_huge_space", "kept_header_space", "inuse_objects", "inuse_space"))
        rows = [{"name": site.name, "where": place_of(site, names, kept), "kept": site.flat[kept],
                 "error": round(site.errors(intervals, kept)[0]), "of_huge_pages": site.flat[huge],
                 "headers": site.flat[headers], "blocks": site.flat[blocks], "in_use": site.flat[in_use]}
                for site in sites_in(found, "flat", lines)]
    return {"kept": round(why.kept.bytes), "kept_by_caches": round(why.kept_by_caches.bytes),
            "of_huge_pages": round(why.kept.huge), "headers": round(why.kept.headers), "exact": why.exact,
            "sites": rows, "by_no_site": [{"what": what, "bytes": value} for what, value in unnamed_of(why)],
            "helps": [asdict(one) for one in helps_of(why, whole)]}


def print_pins(console: Console, why: Why, found: Heap | None, whole: Heap | None, by: str, number: int,
               lines: bool) -> None:
    """Prints the sites, and what would help. found: the stacks selected from `whole`."""
    every = why.kept.bytes + why.kept_by_caches.bytes
    rows = sites_in(found, by, lines) if found is not None else []
    more = f", the first {number} of {len(rows)} sites" if len(rows) > number else ""
    table = new_table(f"Free bytes that stay resident because of blocks in use{more}", "kept", "of all", "huge pages",
                      "headers", "slabs", "in use", "<site", "<where",
                      spare=("headers", "slabs", "huge pages", "in use", "of all"))
    if found is not None:
        names, intervals = [name for name, _ in found.types], Intervals(found)
        kept = names.index("kept_space")
        shown = [names.index(name) for name in ("kept_huge_space", "kept_header_space", "held_slabs", "inuse_space")]
        for site in rows[:number]:
            figures = site.flat if by == "flat" else site.cum
            error = site.errors(intervals, kept)[by != "flat"]
            table.add_row(value_text(figures[kept], "bytes") + error_text(figures[kept], error, "bytes"),
                          words.share(figures[kept], round(every)),
                          *(value_text(figures[place], found.types[place][1]) if figures[place] else ""
                            for place in shown), site.name, place_of(site, names, kept))
    for what, value in unnamed_of(why):
        table.add_row(bytes_column(value), words.share(value, round(every)), "", "", "", "", f"({what})", "")
    sums = [why.kept.huge, why.kept.headers]
    table.add_row(bytes_column(every), "", *(bytes_column(value) if value else "" for value in sums), "",
                  bytes_column(why.live), "= all, exactly", "")
    console.print(table)
    helps = helps_of(why, whole)
    if helps:
        console.print()
    for one in helps:
        console.print(f"{bytes_column(one.bytes)}{error_text(one.bytes, one.error, 'bytes')} {one.action}.")
    console.print()
    for line in sentences(why):
        console.print(line)
