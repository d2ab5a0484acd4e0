"""Computes what a trace holds, on all its operations at once, in the recorded order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hakmem.trace.file import FREES, KINDS, NO_SLOT, REALLOCS, THREAD, Trace, read_trace

if TYPE_CHECKING:
    from hakmem.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

MAX_SIZE = (1 << 48) - 1
SMALLEST_BUCKET = 16
PERCENTILES = (10, 50, 90, 99)


@dataclass(frozen=True)
class Calls:
    """The calls of all threads in the recorded order, one array for each field."""

    thread: Numbers
    kind: Numbers
    size: Numbers
    alignment: Numbers
    slot: NDArray[np.uint32]


@dataclass(frozen=True)
class Blocks:
    """What each call did to its block: change of bytes and blocks in use; and the blocks' lives.
    birth, death: indexes of calls; death is -1 for a block that was never freed."""

    bytes: Numbers
    count: Numbers
    birth: Numbers
    death: Numbers


def in_order(trace: Trace) -> Calls:
    """Returns the Calls. The file has one thread's stream after the other; the runs tell the order."""
    turns = np.repeat(trace.runs["thread"], trace.runs["count"])
    place = np.argsort(turns, kind="stable")
    ops = np.empty_like(trace.ops)
    ops[place] = trace.ops
    packed = ops["packed"]
    kind = ((packed >> np.uint64(56)) & np.uint64(0x3F)).astype(np.int64)
    calls = kind != THREAD
    return Calls(turns[calls].astype(np.int64), kind[calls], (packed & np.uint64(MAX_SIZE)).astype(np.int64)[calls],
                 ((packed >> np.uint64(48)) & np.uint64(0xFF)).astype(np.int64)[calls], ops["slot"][calls])


def follow_blocks(calls: Calls) -> Blocks:
    """Follows each slot through its calls: what it held before each call, and where a life begins and ends in it."""
    on_block = np.flatnonzero(calls.slot != NO_SLOT)
    order = on_block[np.argsort(calls.slot[on_block], kind="stable")]
    slot, kind = calls.slot[order], calls.kind[order]
    frees = np.isin(kind, FREES)
    holds = np.where(frees, 0, calls.size[order])
    follows = np.zeros(len(order), bool)
    follows[1:] = (slot[1:] == slot[:-1]) & ~frees[:-1]
    held = np.zeros(len(order), np.int64)
    held[1:] = np.where(follows[1:], holds[:-1], 0)

    in_use = np.zeros(len(calls.kind), np.int64)
    in_use[order] = holds - held
    count = np.zeros(len(calls.kind), np.int64)
    born = ~follows
    count[order[born]] = 1
    count[order[frees]] = -1

    birth = order[born]
    death = np.full(len(birth), -1)
    life = np.cumsum(born) - 1
    death[life[frees]] = order[frees]
    return Blocks(in_use, count, birth, death)


def describe_sizes(calls: Calls) -> list[Record]:
    """Returns allocating calls by size, in powers of two."""
    made = calls.size[~np.isin(calls.kind, FREES)]
    bounds = SMALLEST_BUCKET << np.arange(45, dtype=np.int64)
    bucket = np.searchsorted(bounds, made)
    counts = np.bincount(bucket, minlength=1)
    total = np.bincount(bucket, weights=made, minlength=1)
    return [{"up_to": int(bounds[i]), "count": int(counts[i]), "bytes": int(total[i])} for i in range(len(counts))]


def percentiles(values: Numbers) -> dict[str, int] | None:
    """Returns the percentiles of the values; None without values."""
    if len(values) == 0:
        return None
    return {f"p{which}": int(value) for which, value in zip(PERCENTILES, np.percentile(values, PERCENTILES))}


def describe_lives(calls: Calls, blocks: Blocks) -> Record:
    """Returns figures on the blocks' lives."""
    freed = blocks.death >= 0
    birth, death = blocks.birth[freed], blocks.death[freed]
    requested = np.cumsum(np.where(np.isin(calls.kind, FREES), 0, calls.size))
    return {
        "freed": int(freed.sum()),
        "never_freed": int((~freed).sum()),
        "freed_by_other_thread": int((calls.thread[birth] != calls.thread[death]).sum()),
        "calls": percentiles(death - birth),
        "bytes": percentiles(requested[death] - requested[birth]),
    }


def peak_of(changes: Numbers) -> tuple[int, int]:
    """Returns (highest sum, last sum) of changes from 0."""
    if len(changes) == 0:
        return 0, 0
    sums = np.cumsum(changes)
    return int(sums.max()), int(sums[-1])


def describe_threads(trace: Trace, calls: Calls) -> list[Record]:
    """Returns an entry for each thread."""
    counts = np.bincount(calls.thread, minlength=trace.header.threads)
    return [{"calls": int(counts[i]), "ended": bool(thread["ended"])} for i, thread in enumerate(trace.threads)]


def most_at_once(trace: Trace) -> int:
    """Returns how many threads lived at the same time at most: those created so far, less those that had ended."""
    packed = trace.ops["packed"]
    created = trace.ops[((packed >> np.uint64(56)) & np.uint64(0x3F)) == THREAD]
    if len(created) == 0:
        return 1
    number = np.arange(1, len(created) + 1)
    exited = np.sort(created["version"].astype(np.int64))
    return int((number + 1 - exited).max())


def describe(path: Path) -> Record:
    """Returns the trace as a dictionary, for JSON and for the tables."""
    trace = read_trace(path)
    header = trace.header
    calls = in_order(trace)
    blocks = follow_blocks(calls)
    kinds = np.bincount(calls.kind, minlength=len(KINDS))
    peak_bytes, end_bytes = peak_of(blocks.bytes)
    peak_blocks, end_blocks = peak_of(blocks.count)
    aligned = calls.alignment > 4
    return {
        "file": str(path), "file_bytes": header.file_bytes, **trace.about, "pid": header.pid,
        "truncated": os.strerror(min(header.stopped, 2**31 - 1)) if header.stopped else None,
        "calls": header.calls,
        "kinds": {name: int(kinds[i]) for i, name in enumerate(KINDS) if kinds[i] and i != THREAD},
        "free_null": int((calls.slot == NO_SLOT).sum()),
        "failed": header.failed, "foreign_frees": header.foreign_frees, "lost_frees": header.lost_frees,
        "in_flight": header.in_flight,
        "bytes_requested": int(calls.size[~np.isin(calls.kind, FREES)].sum()),
        "reallocs": int(np.isin(calls.kind, REALLOCS).sum()),
        "aligned_above_16": int(aligned.sum()),
        "largest": int(calls.size.max(initial=0)),
        "peak_live_bytes": peak_bytes, "peak_live_blocks": peak_blocks,
        "live_at_end_bytes": end_bytes, "live_at_end_blocks": end_blocks,
        "threads": describe_threads(trace, calls), "threads_at_once": most_at_once(trace),
        "lives": describe_lives(calls, blocks),
        "sizes": describe_sizes(calls),
    }
