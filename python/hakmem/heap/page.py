"""Writes a heap profile as one self-contained HTML page: a flame graph to zoom and search, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.compat import zip_strict
from hakmem.document import embedded, read, read_script, rendered
from hakmem.heap.file import write_whole
from hakmem.heap.graph import FOLDER, graph_scripts, graph_style
from hakmem.heap.interval import Intervals, error_text
from hakmem.heap.by_label import cell
from hakmem.heap.lifetimes import OF_LIVES, duration_text, lives_of
from hakmem.heap.show import facts, title_of
from hakmem.heap.sites import Node, order, sites_of, tree_of
from hakmem.heap.sizes import cell as sizes_cell
from hakmem.heap.sizes import rows_of, sizes_of
from hakmem.heap.temporary import HEADS, ranked, temporary_of

if TYPE_CHECKING:
    from hakmem.heap.source import AnySource
    from hakmem.heap.stacks import Heap

# So many nodes a browser draws without a delay.
MOST_NODES = 40_000
# The sites whose sizes the page shows.
SIZES_SITES = 100


def write_page(path: Path, whole: Heap, found: Heap, index: int, files: Sequence[AnySource], base: AnySource | None,
               lines: bool) -> None:
    """Writes the page. whole: the profile, whose figures the head shows. found: the stacks to draw. index: the
    sample type to show first."""
    write_whole(path, page_text(whole, found, index, [file.name for file in files], base.name if base else None,
                                lines).encode())


def page_text(whole: Heap, found: Heap, index: int, names: Sequence[str], base: str | None, lines: bool) -> str:
    """Returns the page. names: the profiles. base: the name of the base they are compared with, or None."""
    return rendered(
        FOLDER / "heap.html", f"Heap of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        read(FOLDER / "heap.css") + graph_style(),
        [*graph_scripts(), *(read_script(FOLDER / name) for name in ("tables.js", "heap.js"))],
        facts=facts(whole, names, base), kinds=kinds(found), shown=index,
        lives=bool(lives_of(found, lines)), sizes=bool(sizes_of(found, lines)),
        temporary=HEADS if temporary_of(found, lines) else (),
        labels=any(stack.labels for stack in found.stacks),
        compared=found.compared, share="Of the base" if found.compared else "Share",
        data=embedded(page_data(found, index, lines)))


def kinds(found: Heap) -> list[tuple[int, str, str]]:
    """Returns (place, name, title) of each sample type that can be shown."""
    return [(place, name, title_of(name)) for place, (name, _) in enumerate(found.types) if name not in OF_LIVES]


def page_data(found: Heap, index: int, lines: bool) -> dict[str, object]:
    """Returns the page's data. nodes: [parent, name, place, values, base], parents first. sites: [name, place, flat,
    cum, life, labels, sizes, errors], with labels, sizes, and errors of flat and cum for each sample type. temporary:
    [name, freed objects, a number for each of HEADS]. spreads: {sample type: [[name, figure, [[size, figure,
    objects]]]]}, with sites and sizes in the order of tables; objects: null if they are not counted. Each text occurs
    once. What the profile lacks is null or empty."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))
    root = tree_of(found, lines)
    least, left_out = least_share(root)
    nodes: list[list[object]] = []
    waiting = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        waiting += [(child, len(nodes)) for child in node.children.values() if share(child, root) >= least]
        nodes.append([parent, text(node.name), text(node.place), node.values,
                      *([node.base] if found.compared else [])])
    places = range(len(found.types))
    lives, sizes = lives_of(found, lines), sizes_of(found, lines)
    labelled, intervals = any(stack.labels for stack in found.stacks), Intervals(found)
    every = order(sites_of(found, lines), index, "flat", found.compared)
    sites = [[text(site.name), text(site.where(index)), [site.flat_change(place) for place in places],
              [site.cum_change(place) for place in places],
              duration_text(lives[site.key].mean() if site.key in lives else None) if lives else None,
              [text(cell(site.labels, place)) for place in places] if labelled else None,
              [text(sizes_cell(sizes.get(site.key, {}), place)) for place in places] if sizes else None,
              [[text(error_text(values(place), site.errors(intervals, place)[cum], found.types[place][1]))
                for place in places] for cum, values in enumerate((site.flat_change, site.cum_change))]]
             for site in every]
    soon = [[text(site.name), row.freed, row.counts()] for site, row in ranked(every, temporary_of(found, lines))]
    spreads = {kind: [[text(site.name), site.flat_change(kind),
                       [[text(size), value, objects] for size, value, objects in rows]]
                      for site, rows in rows_of(found, every, sizes, kind, SIZES_SITES)]
               for kind, _, _ in kinds(found)} if sizes else {}
    return {"types": found.types, "shown": index, "compared": found.compared, "nodes": nodes, "leftOut": left_out,
            "sites": sites, "temporary": soon, "spreads": spreads, "texts": list(texts)}


def share(node: Node, root: Node) -> float:
    """Returns the node's share of the root, the largest of all sample types. It is never above the caller's share."""
    return max((value / whole for values, wholes in ((node.values, root.values), (node.base, root.base))
                for value, whole in zip_strict(values, wholes) if whole > 0), default=0)


def least_share(root: Node) -> tuple[float, int]:
    """Returns the least share of a drawn node, to limit their number, and how many nodes are left out."""
    shares, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        shares.append(share(node, root))
        waiting += node.children.values()
    if len(shares) <= MOST_NODES:
        return 0, 0
    shares.sort(reverse=True)
    least = next((one for one in reversed(shares[:MOST_NODES]) if one > shares[MOST_NODES]), shares[0])
    return least, sum(1 for one in shares if one < least)
