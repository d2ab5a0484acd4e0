"""The flame graph that the pages of `hakmem heap` and `hakmem serve` share: scripts, style, and a part of their
templates (../page/graph.html)."""

from __future__ import annotations

from pathlib import Path

from hakmem.document import read, read_script

FOLDER = Path(__file__).with_name("page")
# Release files of d3 (ISC license) and d3-flame-graph (Apache License 2.0), as published, with their licenses.
LIBRARIES = ("vendor/d3.min.js", "vendor/d3-flamegraph.umd.min.js")
SCRIPTS = (*LIBRARIES, "keys.js", "graph.js")


def graph_scripts() -> list[str]:
    """Returns the texts of the scripts, in the order in which a page has them."""
    return [read_script(FOLDER / name) for name in SCRIPTS]


def graph_style() -> str:
    """Returns the style. The page's own style defines the colors and the font that it names."""
    return read(FOLDER / "graph.css")
