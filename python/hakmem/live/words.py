"""Explains each part of the memory, and writes shares and headings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hakmem.live.model import Snapshot

# The parts of Totals, which add up to `mapped`.
PARTS = {
    "live": "blocks that the program holds, rounded up to their size class",
    "cached": "blocks in thread caches",
    "free_in_slab": "free blocks and tails of slabs in use",
    "retained": "free units and huge ranges kept for reuse, purged or not",
    "metadata": "HAKMEM's own: headers, page map, caches, the heap profile's tables",
}
OTHER_TOTALS = {
    "heap_profile": "of metadata: the heap profile's tables",
    "mapped": "committed address space, the sum of the parts",
    "purged": "of retained: given back to the system, without memory behind it",
    "guard_units": "of purged: units beside slabs that nobody can access, in the hardened library",
    "huge_live": "of live: blocks above 1 MiB",
    "huge_cached": "of retained: freed huge ranges",
    "footprint_peak": "the most bytes of slabs, free units with memory and huge blocks at one time",
}


def share(part: float, whole: float) -> str:
    """Returns a part in percent."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def heading(shot: Snapshot) -> str:
    """Returns whose heap it is."""
    return f"{shot.command or 'program'}{f' ({shot.pid})' if shot.pid else ''} on HAKMEM {shot.version}"
