"""A snapshot drawn as one HTML page that needs nothing else: every unit of every SuperSlab, and what it holds.

A policy in the page lets only its own script run and nothing be fetched.
"""

import base64
import hashlib
import json
import time
from pathlib import Path

import jinja2
import numpy
from markupsafe import Markup

from hakmem.live import words
from hakmem.live.model import TIERS, UNIT_STATES

FOLDER = Path(__file__).with_name("page")
# Huge blocks in the table, the largest.
HUGE_SHOWN = 200


def map_page(shot):
    """The page's text."""
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True,
                                  undefined=jinja2.StrictUndefined).get_template("map.html")
    script = (FOLDER / "map.js").read_text(encoding="utf-8")
    totals = shot.totals
    parts = [(name.replace("_", " "), getattr(totals, name), words.share(getattr(totals, name), totals.mapped), meaning)
             for name, meaning in words.PARTS.items()]
    huge = sorted(shot.huge, key=lambda block: block.bytes, reverse=True)
    return template.render(
        title=f"The heap of {words.heading(shot)}", size=words.size, totals=totals, parts=parts, threads=shot.threads,
        huge=huge[:HUGE_SHOWN], huge_left=max(len(huge) - HUGE_SHOWN, 0), superslabs=len(shot.units.number),
        when=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(shot.time)),
        style=Markup((FOLDER / "map.css").read_text(encoding="utf-8")), script=Markup(script),
        script_hash=f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'",
        data=Markup(json.dumps(map_data(shot), separators=(",", ":")).replace("<", "\\u003c")))


def map_data(shot):
    """What the script draws: arrays of a row a SuperSlab and a column a unit, as bytes in base64."""
    units = shot.units
    return {
        "states": UNIT_STATES, "tiers": TIERS, "unitsInSuperslab": int(units.state.shape[1]),
        "unitSize": shot.unit_size, "blockSizes": shot.block_sizes, "classBlocks": shot.class_blocks,
        "slabs": {str(row.class_id): row.slabs for row in shot.classes},
        "heaps": {str(row.heap): owner_text(row) for row in shot.threads},
        "number": packed(units.number, "u4"), "address": [f"{int(address):x}" for address in units.address],
        "tier": packed(units.tier, "u1"),
        "flags": packed(units.huge_pages + 2 * units.decommitted.astype("u1"), "u1"),
        "state": packed(units.state, "u1"), "first": packed(units.first, "u1"), "class": packed(units.class_id, "u1"),
        "used": packed(units.used, "u2"), "cached": packed(units.cached, "u2"), "owner": packed(units.owner, "u4")}


def packed(array, kind):
    return base64.b64encode(numpy.ascontiguousarray(array, f"<{kind}").tobytes()).decode()


OWNERS = {"house": "the house heap", "first_class": "a first-class heap", "profile": "the heap profile"}


def owner_text(thread):
    """What the page calls a heap."""
    if thread.tid:
        return f"heap {thread.heap}, thread {thread.tid} {thread.name}".strip()
    return f"heap {thread.heap}, {OWNERS.get(thread.kind, 'no thread any more')}"
