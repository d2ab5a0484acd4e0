"""How large blocks are, by the site that allocated them.

HAKMEM's profiles have a sample for each size of a site's blocks, which the numeric label bytes names; so have Go's.
Above 1 MiB, HAKMEM's size is the greatest quarter of a power of two that the block fills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hakmem.heap.sites import Site, SiteKey, add, leaf_of, note_change, order
from hakmem.units import bytes_text

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap

# A site with more sizes than this is shown by powers of two.
SIZES_SHOWN = 12
# Sizes in a cell of the page's table.
CELL_SIZES = 3
# Larger sizes than the largest size class are rounded down.
EXACT_MOST = 1 << 20
# The size of what has none in a profile that tells sizes.
OTHER = 0


def sizes_of(heap: Heap, lines: bool) -> dict[SiteKey, dict[int, list[int]]]:
    """Returns {site's key: {size: the change of each figure}}; {} if the profile tells no sizes. Samples without a
    size that count freed blocks are left out."""
    found: dict[SiteKey, dict[int, list[int]]] = {}
    if all(stack.size is None for stack in heap.stacks):
        return found
    for stack in heap.stacks:
        if stack.size is None and (stack.lived_from, stack.calls_from) != (None, None):
            continue
        note_change(found.setdefault(leaf_of(stack, lines), {}), stack.size or OTHER, stack)
    return found


def spread(sizes: Mapping[int, Sequence[int]], index: int) -> list[tuple[str, list[int]]]:
    """Returns [(name of a size, figures)] of a site's sizes that have a figure, the smallest first: each size, or if
    these are many, sizes up to each power of two."""
    kept = {size: values for size, values in sizes.items() if values[index]}
    if len(kept) <= SIZES_SHOWN:
        return [(size_text(size), list(kept[size])) for size in sorted(kept, key=by_size)]
    merged: dict[int, list[int]] = {}
    for size, values in kept.items():
        bound = 1 << (size - 1).bit_length() if size else OTHER
        add(merged.setdefault(bound, [0] * len(values)), values)
    return [(f"up to {size_text(size, False)}" if size else size_text(size), merged[size])
            for size in sorted(merged, key=by_size)]


def by_size(size: int) -> tuple[bool, int]:
    """Returns what sizes are sorted by: other sizes stand last."""
    return (size == OTHER, size)


def size_text(size: int, rounded: bool = True) -> str:
    """Returns a size as a text. rounded: one beyond EXACT_MOST stands for blocks of this size and somewhat more."""
    if size == OTHER:
        return "other sizes"
    return f"{bytes_text(size)}{'+' if rounded and size > EXACT_MOST else ''}"


def cell(sizes: Mapping[int, Sequence[int]], index: int) -> str:
    """Returns the sizes with the most of a figure as a text, such as "64 B 75 %, 1 KiB 25 %"."""
    found = spread(sizes, index)
    total = sum(abs(values[index]) for _, values in found)
    most = sorted(found, key=lambda row: -abs(row[1][index]))
    shown = [f"{name} {100 * abs(values[index]) / total:.0f} %" for name, values in most[:CELL_SIZES]]
    return ", ".join([*shown, *([f"{len(most) - CELL_SIZES} more"] if len(most) > CELL_SIZES else [])])


def rows_of(heap: Heap, sites: Iterable[Site], sizes: Mapping[SiteKey, Mapping[int, Sequence[int]]], index: int,
            most: int) -> list[tuple[Site, list[tuple[str, int, int | None]]]]:
    """Returns (site, [(name of a size, figure, objects)]) of the sites with most of a figure, as spread() says; at most
    `most` sites. objects is None if the profile does not count them."""
    counted = heap.objects_of(index)
    shown = [site for site in order(sites, index, "flat", heap.compared) if site.flat_change(index)]
    return [(site, [(size, values[index], None if counted is None else values[counted])
                    for size, values in spread(sizes.get(site.key, {}), index)]) for site in shown[:most]]
