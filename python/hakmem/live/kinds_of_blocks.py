"""The kinds of memory in which blocks lie, as in src/observe/stats.c: small, medium, spans, huge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hakmem.live.model import BlockPool, SizeClass

if TYPE_CHECKING:
    from hakmem.live.huge import HugeState

# The largest block of a small class, if the library does not say.
SMALL_MOST = 1024


def block_pools(classes: list[SizeClass], huge: HugeState, small_most: int) -> list[BlockPool]:
    """Returns the BlockPools of the SizeClasses and of a HugeState."""
    made = {name: BlockPool(name) for name in ("small", "medium", "spans", "huge")}
    for row in classes:
        pool = made["spans" if row.span else "small" if row.block_size <= small_most else "medium"]
        pool.slabs += row.slabs
        pool.slab_bytes += row.slab_bytes
        pool.live_blocks += row.live_blocks
        pool.live_bytes += row.live_bytes
        pool.cached_blocks += row.cached_blocks
        pool.cached_bytes += row.cached_bytes
        pool.free_blocks += row.free_blocks
        pool.free_bytes += row.slab_bytes - row.live_bytes - row.cached_bytes
    made["huge"] = BlockPool("huge", huge.live_blocks, huge.live_bytes + huge.cached_bytes, huge.live_blocks,
                             huge.live_bytes, free_bytes=huge.cached_bytes)
    return list(made.values())
