"""Draws a snapshot as one self-contained HTML page: every unit of every SuperSlab and what it holds."""

from __future__ import annotations

import base64
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.compat import zip_strict
from hakmem.document import embedded, read, read_script, rendered
from hakmem.live import words
from hakmem.live.model import UNIT_STATES, Snapshot, Thread
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FOLDER = Path(__file__).with_name("page")
# The huge blocks that the table shows: the largest.
HUGE_SHOWN = 200
# TIERS in words. The page says FULL only if no block is free either.
TIER_WORDS = ("no unit free", "some units free", "most units free", "empty")


def map_page(shot: Snapshot) -> str:
    """Returns the page's text."""
    totals = shot.totals
    parts = [(name.replace("_", " "), getattr(totals, name), words.share(getattr(totals, name), totals.mapped), meaning)
             for name, meaning in words.PARTS.items()]
    huge = sorted(shot.huge, key=lambda block: block.bytes, reverse=True)
    return rendered(
        FOLDER / "map.html", f"The heap of {words.heading(shot)}", read(FOLDER / "map.css"),
        [read_script(FOLDER / "map.js")], size=bytes_column, totals=totals, parts=parts, threads=shot.threads,
        huge=huge[:HUGE_SHOWN], huge_left=max(len(huge) - HUGE_SHOWN, 0), superslabs=len(shot.units.number),
        when=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(shot.time)),
        data=embedded(map_data(shot)))


def map_data(shot: Snapshot) -> dict[str, object]:
    """Returns what the script draws: arrays with a row for each SuperSlab and a column for each unit, as base64."""
    units = shot.units
    return {
        "states": UNIT_STATES, "tierWords": TIER_WORDS, "unitsInSuperslab": shot.superslab_size // shot.unit_size,
        "unitSize": shot.unit_size, "blockSizes": shot.block_sizes, "classBlocks": shot.class_blocks,
        "slabs": {str(row.class_id): row.slabs for row in shot.classes},
        "heaps": {str(row.heap): owner_text(row) for row in shot.threads},
        "number": packed(array("I", units.number)), "address": [f"{address:x}" for address in units.address],
        "tier": packed(bytes(units.tier)),
        "flags": packed(bytes(huge + 2 * gone for huge, gone in zip_strict(units.huge_pages, units.decommitted))),
        "state": packed(b"".join(units.state)), "first": packed(firsts(shot)),
        "class": packed(units.spread("B", lambda slab: slab.class_id)),
        "used": packed(units.spread("H", lambda slab: slab.used)),
        "cached": packed(units.spread("H", lambda slab: slab.cached)),
        "owner": packed(units.spread("I", lambda slab: slab.owner))}


def firsts(shot: Snapshot) -> bytearray:
    """Returns, for each unit of all SuperSlabs, the first unit of its slab, or 0."""
    made = bytearray(b"".join(bytes(len(state)) for state in shot.units.state))
    for slab in shot.units.slabs:
        start = slab.row * (shot.superslab_size // shot.unit_size) + slab.first
        made[start:start + slab.length] = bytes([slab.first]) * slab.length
    return made


def packed(numbers: ReadableBuffer) -> str:
    """Returns the numbers' bytes as base64. The bytes are little-endian, as on every machine that HAKMEM supports."""
    return base64.b64encode(bytes(numbers)).decode()


OWNERS = {"house": "the house heap", "first_class": "a first-class heap", "profile": "the heap profile",
          "shared": "a heap that threads share", "long_lived": "the heap of long-lived blocks"}


def owner_text(thread: Thread) -> str:
    """Returns the name of a heap on the page."""
    if thread.tid:
        return f"heap {thread.heap}, thread {thread.tid} {thread.name}".strip()
    return f"heap {thread.heap}, {OWNERS.get(thread.kind, 'no thread any more')}"
