"""What the parts of the allocator served, and what they passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hakmem.live.model import SizeClass, Snapshot


@dataclass(frozen=True)
class Part:
    """A part: the calls or requests that it served, and those that it did not."""

    name: str
    hits: int
    misses: int
    meaning: str = ""

    @property
    def rate(self) -> float | None:
        """The share of hits; None of nothing."""
        whole = self.hits + self.misses
        return self.hits / whole if whole else None


def of_mallocs(counters: Mapping[str, int], name: str = "", meaning: str = "") -> Part | None:
    """Returns what thread caches did with allocations. None: the process does not count hits."""
    if "malloc_hits" not in counters:
        return None
    return Part(name, counters["malloc_hits"], max(0, counters["refills"] - counters["direct"]), meaning)


def of_frees(counters: Mapping[str, int], name: str = "", meaning: str = "") -> Part | None:
    """Returns what thread caches did with frees. None: the process does not count hits."""
    if "free_hits" not in counters:
        return None
    return Part(name, counters["free_hits"], counters["overflows"], meaning)


def spans(classes: list[SizeClass]) -> dict[str, int]:
    """Returns the sums of the counters of spans."""
    rows = [row.counters for row in classes if row.span]
    return {name: sum(row[name] for row in rows) for name in (rows[0] if rows else ())}


def parts(shot: Snapshot) -> list[Part]:
    """Returns the parts that were asked at all, as src/observe/report_tables.c:report_parts has them."""
    counters = shot.counters
    found = [of_mallocs(counters, "thread caches, malloc", "a miss is a refill"),
             of_mallocs(spans(shot.classes), "of these, spans", "blocks of 64 KiB to 1 MiB"),
             of_frees(counters, "thread caches, free", "a miss found the stack full"),
             of_frees(spans(shot.classes), "of these, spans freed")]
    if "slab_misses" in counters:
        found.append(Part("slabs", counters["refills"] - counters["slab_misses"], counters["slab_misses"],
                          "refills; a miss needs another slab"))
        found.append(Part("reserve (warm pool)", counters["warm_hits"], counters["warm_misses"],
                          "slabs; a miss asks the shared pool"))
    if "shared_pool_slabs" in counters:
        found.append(Part("shared pool", max(0, counters["shared_pool_slabs"] - counters["shared_pool_superslabs"]),
                          counters["shared_pool_superslabs"], "slabs; a miss makes a SuperSlab"))
    return [part for part in found if part and part.rate is not None]
