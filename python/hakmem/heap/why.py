"""Explains why more memory is resident than the program asked for, as a profile and as tables.

Each part of the difference is a sample type, so that sites, trees and flame graphs work as for any other profile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hakmem.compat import zip_strict
from hakmem.heap.file import ProfileError, parse_profile
from hakmem.heap.outside import Look, Making, code_of
from hakmem.heap.show import value_text
from hakmem.heap.sites import Site, order, sites_of
from hakmem.heap.stacks import add_up
from hakmem.live import words
from hakmem.live.show import new_table
from hakmem.live.why import Share, Why, why_of
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile
    from hakmem.heap.source import Process
    from hakmem.heap.stacks import Heap
    from hakmem.live.idle import Idle
    from hakmem.live.memory import ProcessMemory
    from hakmem.screen import Console

# {sample type: (its unit, its figure for a Share)}
TYPES: dict[str, tuple[str, Callable[[Share], float]]] = {
    "above_space": ("bytes", lambda share: share.rounding + share.kept.held),
    "rounding_space": ("bytes", lambda share: share.rounding),
    "held_space": ("bytes", lambda share: share.kept.held),
    "held_slabs": ("count", lambda share: share.kept.slabs),
    "held_superslabs": ("count", lambda share: share.kept.superslabs),
    "kept_space": ("bytes", lambda share: share.kept.bytes),
    "kept_huge_space": ("bytes", lambda share: share.kept.huge),
    "kept_header_space": ("bytes", lambda share: share.kept.headers),
    "untouched_space": ("bytes", lambda share: share.untouched),
    "idle_space": ("bytes", lambda share: share.idle),
    "inuse_objects": ("count", lambda share: share.blocks),
    "inuse_space": ("bytes", lambda share: share.in_use),
}
# {word of --why: its sample type}
KINDS = {"above": "above_space", "rounding": "rounding_space", "held": "held_space", "untouched": "untouched_space",
         "idle": "idle_space"}
CLASSES_SHOWN, CACHES_SHOWN = 8, 8


class NoSites(ProfileError):
    """The process takes no heap profile."""


def look(source: Process, idle_seconds: float | None = None) -> tuple[Why, Profile]:
    """Returns (Why, Profile) of a process; raises NoSites if there is no profile that tells sites apart."""
    from hakmem.live import LiveError, ProcessMemory

    try:
        memory = ProcessMemory(source.pid)
        why = why_of(memory, idle_seconds, time.sleep)
        return why, profile_of(memory, why, source)
    except LiveError as error:
        raise ProfileError(str(error)) from error


def profile_of(memory: ProcessMemory, why: Why, source: object) -> Profile:
    """Returns the Profile of a Why; raises NoSites if there is no profile that tells sites apart."""
    if why.heap is None:
        raise NoSites(why.missing)
    seen = Look(why.version, time.time_ns(), time.monotonic_ns(), why.heap, code_of(memory), memory.pid)
    made = Making(seen, "above_space", [(name, unit) for name, (unit, _) in TYPES.items()])
    for site in why.heap.sites:
        share = why.sites.get(site.address, Share())
        values = tuple(round(figure(share)) for _, figure in TYPES.values())
        made.add(site.frames, {None: values}, site.labels)
        if any(values):
            why.variances.append(share.variance)
    profile = made.finished(seen.clock_ns - why.heap.started_ns)
    if not profile.sample:
        raise ProfileError(f"process {memory.pid}: its heap profile has no block in use; its samples are "
                           f"{why.heap.mean:,} bytes apart in the mean")
    return parse_profile(profile.SerializeToString(), source)


def stacks_of(why: Why, profile: Profile, source: Process, whole_names: bool = False,
              interpreter: bool = False) -> Heap:
    """Returns the stacks of a Why's Profile, with the variances of what their blocks keep."""
    found = add_up({source: profile}, whole_names, interpreter)
    place, width = found.index("kept_space"), len(found.types)
    stacks = [replace(stack, variances=tuple(
        variance if number == place else known
        for number, known in enumerate(stack.variances or (0.0,) * width)))
        for stack, variance in zip_strict(found.stacks, why.variances)]
    return replace(found, stacks=stacks, kept=(found.total(place), sum(why.variances)))


# ---- As tables ----


def chain_of(why: Why) -> list[tuple[str, int, str]]:
    """Returns [(name, bytes, meaning)] from the bytes asked for to Rss. Each row adds to the sum, except for the
    rows that are sums themselves."""
    parts = why.explanation.heap
    asked, resident = why.live - why.rounding, why.live - why.untouched - why.swapped
    rows = [("asked for", asked, "bytes of live blocks that their calls wanted"),
            ("rounding", why.rounding, "up to the size class, or to whole units"),
            ("= live", why.live, "blocks that the program holds")]
    if why.heap is None:
        rows = rows[2:]
    rows += [("untouched", -why.untouched, "pages of live blocks that were never written"),
             *([("swapped out", -why.swapped, "of live blocks")] if why.swapped else []),
             ("held", held_of(why), "free bytes that blocks keep, on the same page or huge page: --pins"),
             ("free in slabs", parts["free_in_slab"],
              "other free pages of slabs in use: they wait to be used again, or to leave"),
             ("thread caches", parts["cached"], "free blocks that threads keep for their next calls"),
             ("retained", parts["retained"], "free slabs and huge ranges: they wait, too"),
             ("metadata", parts["metadata"], "HAKMEM's own, the heap profile's tables too"),
             ("other memory", sum(why.explanation.other.values()),
              "the program, libraries, stacks, files: hakmem look PID --explain lists it"),
             ("change", why.explanation.rss - why.explanation.sum + parts["live"] - resident, "while it was looked at"),
             ("= Rss", why.explanation.rss, "what the kernel counts")]
    return [row for row in rows if row[1] or row[0] != "change"]


def held_of(why: Why) -> int:
    """Returns the free bytes that stay resident because of blocks beside them."""
    return sum(why.explanation.heap[part] for part in ("fragmentation", "huge_pages"))


def unknown_of(why: Why) -> list[tuple[str, int]]:
    """Returns [(what holds it, bytes)] for held memory that no site holds."""
    rest, caches = round(why.kept.held - why.total.kept.held), round(why.kept_by_caches.held)
    return [(name, value) for name, value in (
        ("blocks of which none is a sample", rest), ("blocks in thread caches alone", caches)) if value > 0]


def print_why(console: Console, why: Why, found: Heap | None, kind: str, by: str, number: int, lines: bool) -> None:
    """Prints the tables. found: the profile's stacks, or those selected from it."""
    print_chain(console, why)
    if found is not None:
        console.print()
        print_sites(console, why, found, kind, by, number, lines)
    console.print()
    print_classes(console, why)
    if why.caches:
        console.print()
        print_caches(console, why)
    console.print()
    for line in sentences(why):
        console.print(line)


def print_chain(console: Console, why: Why) -> None:
    """Prints the rows from the bytes asked for to Rss."""
    table = new_table("Why Rss is what it is", "<", "bytes", "", "of Rss", "<what it is", spare=("", "of Rss"))
    for name, value, meaning in chain_of(why):
        table.add_row(name, f"{value:,}", bytes_column(value), words.share(value, why.explanation.rss), meaning,
                      end_section=name.startswith("="))
    console.print(table)


def print_sites(console: Console, why: Why, found: Heap, kind: str, by: str, number: int, lines: bool) -> None:
    """Prints the first sites with their parts."""
    names = [name for name, _ in found.types]
    index = names.index(KINDS[kind])
    rows = [site for site in order(sites_of(found, lines), index, by, found.compared)
            if any(site.flat[names.index(name)] for name in KINDS.values())]
    shown = ["above_space", "rounding_space", "held_space", "held_slabs", "untouched_space",
             *(["idle_space"] if why.idle else []), "inuse_space"]
    heads = {"above_space": "above", "rounding_space": "rounding", "held_space": "held", "held_slabs": "slabs",
             "untouched_space": "untouched", "idle_space": "idle", "inuse_space": "in use"}
    more = f", the first {number} of {len(rows)} sites" if len(rows) > number else ""
    table = new_table(f"By site{more}", *(heads[name] for name in shown), "<site", "<where",
                      spare=[head for head in ("slabs", "in use", "untouched", "rounding", "idle", "held")
                             if head != heads[KINDS[kind]]])
    for site in rows[:number]:
        figures = site.flat if by == "flat" else site.cum
        cells = [
            value_text(figures[names.index(name)], TYPES[name][0]) if figures[names.index(name)] else ""
            for name in shown
        ]
        table.add_row(*cells, site.name, place_of(site, names, index))
    for what, value in unknown_of(why):
        place = shown.index("held_space")
        table.add_row(*("" if number != place else value_text(value, "bytes") for number in range(len(shown))),
                      f"({what})", "")
    console.print(table)


def place_of(site: Site, names: list[str], index: int) -> str:
    """Returns where the site is, with the lines that hold most of the figure, or else of the bytes in use."""
    place = site.where(index)
    return place if place != site.place else site.where(names.index("inuse_space"))


def print_classes(console: Console, why: Why) -> None:
    """Prints the size classes whose slabs hold most free memory."""
    rows = [row for row in why.classes if row[-1]][:CLASSES_SHOWN]
    table = new_table("Slabs that hold free memory", "block", "slabs", "mostly empty", "live blocks", "held")
    for size, slabs, sparse, live, held in rows:
        table.add_row(f"{size:,}", f"{slabs:,}", f"{sparse:,}", f"{live:,}", bytes_column(held))
    console.print(table)


def print_caches(console: Console, why: Why) -> None:
    """Prints the threads whose caches hold most."""
    table = new_table("Thread caches", "<thread", "id", "cached")
    for name, tid, value in why.caches[:CACHES_SHOWN]:
        table.add_row(name, str(tid or "-"), bytes_column(value))
    if len(why.caches) > CACHES_SHOWN:
        rest = why.caches[CACHES_SHOWN:]
        table.add_row(f"{len(rest):,} more", "", bytes_column(sum(value for _, _, value in rest)))
    console.print(table)


def sentences(why: Why) -> list[str]:
    """Returns lines about how good the figures are and what is missing."""
    lines = []
    if why.heap is None:
        lines.append(f"No sites: {why.missing}.")
    elif why.exact:
        lines.append("Exact: every block is a sample.")
    else:
        lines.append(f"Sites are estimates: a sample stands for {bytes_column(why.heap.mean)} of blocks in the mean."
                     + (f" No sample stands for {bytes_column(why.unknown_live)} of what is live: it is from before "
                        "the profile, or too little." if why.unknown_live > why.live / 10 else ""))
    if why.explanation.waiting and why.explanation.departure:
        lines.append(why.explanation.departure.text())
    if why.idle:
        lines.append(idle_sentence(why.idle))
    if why.explanation.moving:
        lines.append("It moves too fast to be caught at one moment: stop it meanwhile (kill -STOP), or look again.")
    return lines


def idle_sentence(idle: Idle) -> str:
    """Returns a sentence on memory that did not change."""
    seen = "" if idle.referenced is None else (f" The kernel saw {bytes_column(idle.referenced)} of "
                                               f"{bytes_column(idle.heap_rss)} read or written.")
    return (f"In {idle.seconds:.1f} s, {bytes_column(idle.unchanged.total)} of the heap's "
            f"{bytes_column(idle.compared)} did not change."
            f"{seen} {idle.note}")


def as_data(why: Why, found: Heap | None, lines: bool, most: int | None = None) -> dict[str, object]:
    """Returns everything for JSON, of sites the first `most`."""
    names = list(TYPES)
    idle = why.idle and {
        "seconds": why.idle.seconds, "unchanged": why.idle.unchanged.total, "compared": why.idle.compared,
        "referenced": why.idle.referenced, "heap_rss": why.idle.heap_rss, "note": why.idle.note
    }
    return {"exact": why.exact, "mean": why.heap.mean if why.heap else None, "missing": why.missing or None,
            "chain": [{"name": name, "bytes": value, "meaning": meaning} for name, value, meaning in chain_of(why)],
            "held_by_no_site": [{"what": what, "bytes": value} for what, value in unknown_of(why)],
            "sites": [] if found is None else [
                {"name": site.name, "where": place_of(site, names, 0), "flat": dict(zip_strict(names, site.flat)),
                 "cum": dict(zip_strict(names, site.cum))}
                for site in order(sites_of(found, lines), 0, "flat", False)[:most]],
            "classes": [dict(zip_strict(("block_size", "slabs", "mostly_empty", "live_blocks", "held"), row))
                        for row in why.classes],
            "thread_caches": [{"thread": name, "tid": tid, "bytes": value} for name, tid, value in why.caches],
            "idle": idle, "notes": sentences(why)}
