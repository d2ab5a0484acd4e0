"""Temporary blocks, by the site that allocated them: those that their own thread freed soon.

Time is counted in the thread's allocations: HAKMEM's profiles have the sample type own_freed_objects, with a sample for
each power of two of allocations that the thread made between a block's allocation and its free. The label
allocations_from names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hakmem.heap.lifetimes import FREED, OWN_FREED
from hakmem.heap.sites import Site, SiteKey, leaf_of

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap

# A block is temporary if it is freed before its thread's next N allocations: the powers of two that tables show.
WITHIN = (1, 2, 16, 256, 4096)
# The heads of a table's columns: before the next N allocations, later, and by another thread.
HEADS = (*(f"{most:,}" for most in WITHIN), "later", "elsewhere")


@dataclass
class Temporary:
    """One site's freed objects. freed: all. own: those that the allocating thread freed. within: of these, those freed
    before its next N allocations, for each N of WITHIN."""

    freed: int = 0
    own: int = 0
    within: list[int] = field(default_factory=lambda: [0] * len(WITHIN))

    def elsewhere(self) -> int:
        """Returns how many objects another thread freed. The sums are rounded, so `own` may be above `freed`."""
        return max(0, self.freed - self.own) if self.freed >= 0 else self.freed - self.own

    def counts(self) -> list[int]:
        """Returns the number of objects for each of HEADS."""
        return [*self.within, self.own - self.within[-1], self.elsewhere()]


def temporary_of(heap: Heap, lines: bool) -> dict[SiteKey, Temporary]:
    """Returns {site's key: Temporary}; {} if the profile does not tell."""
    if FREED not in heap.types or OWN_FREED not in heap.types:
        return {}
    freed, own = heap.types.index(FREED), heap.types.index(OWN_FREED)
    found: dict[SiteKey, Temporary] = {}
    for stack in heap.stacks:
        change, by_own = (stack.values[place] - stack.base[place] for place in (freed, own))
        if change == by_own == 0:
            continue
        row = found.setdefault(leaf_of(stack, lines), Temporary())
        row.freed += change
        row.own += by_own
        if stack.calls_from is None:
            continue
        for place, most in enumerate(WITHIN):
            row.within[place] += by_own if stack.calls_from < most else 0
    return found


def ranked(sites: Iterable[Site], temporary: Mapping[SiteKey, Temporary]) -> list[tuple[Site, Temporary]]:
    """Returns the sites that freed objects, those with most temporary ones first."""
    found = [(site, temporary[site.key]) for site in sites if site.key in temporary]
    return sorted(found, key=lambda row: [-count for count in row[1].within])
