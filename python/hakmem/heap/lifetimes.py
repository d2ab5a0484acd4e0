"""How long blocks lived, by the site that allocated them.

HAKMEM's profiles have the sample types freed_objects and lifetime (the sum of the objects' lifetimes in
milliseconds). Lifetimes have samples of their own, one for each power of two of milliseconds, which the label
lifetime_from names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hakmem.heap.sites import SiteKey, leaf_of

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap

FREED, LIFETIME = ("freed_objects", "count"), ("lifetime", "milliseconds")
OWN_FREED = ("own_freed_objects", "count")  # temporary.py
# Sample types that sites are not ranked by.
OF_LIVES = (FREED[0], LIFETIME[0], OWN_FREED[0])
# The spans that tables show: (name, start in milliseconds).
SPANS = (("< 1 ms", 0), ("1 ms", 1), ("16 ms", 16), ("256 ms", 256), ("4.1 s", 4096), ("65.5 s", 65536),
         ("17.5 min", 1 << 20))


@dataclass
class Lives:
    """One site's lifetimes. freed: objects. total: milliseconds in sum. spans: objects in each of SPANS."""

    freed: int = 0
    total: int = 0
    spans: list[int] = field(default_factory=lambda: [0] * len(SPANS))

    def mean(self) -> float | None:
        """Returns the mean in milliseconds; None if nothing was freed."""
        return self.total / self.freed if self.freed > 0 else None


def lives_of(heap: Heap, lines: bool) -> dict[SiteKey | None, Lives]:
    """Returns {site's key: Lives}, with the sum of all sites under None; {} if the profile has no lifetimes."""
    if FREED not in heap.types or LIFETIME not in heap.types:
        return {}
    freed, lifetime = heap.types.index(FREED), heap.types.index(LIFETIME)
    in_all = Lives()
    found: dict[SiteKey | None, Lives] = {None: in_all}
    for stack in heap.stacks:
        objects = stack.values[freed] - stack.base[freed]
        if objects == 0:
            continue
        for lives in (in_all, found.setdefault(leaf_of(stack, lines), Lives())):
            lives.freed += objects
            lives.total += stack.values[lifetime] - stack.base[lifetime]
            if stack.lived_from is not None:
                lives.spans[span_of(stack.lived_from)] += objects
    return found


def span_of(milliseconds: float) -> int:
    """Returns which of SPANS a time falls into. A time below 0, which only a damaged file has, counts as 0."""
    return max(place for place, (_, start) in enumerate(SPANS) if start <= max(0, milliseconds))


def duration_text(milliseconds: float | None) -> str:
    """Returns milliseconds as a text with a unit."""
    if milliseconds is None:
        return "-"
    for name, size in (("h", 3600e3), ("min", 60e3), ("s", 1e3)):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {name}"
    return f"{milliseconds:.3g} ms" if milliseconds >= 1 else "< 1 ms"
