"""Ranks what costs a program time: how often each thing happens, times what one costs, and what would take it away.

Prices are constants but for that of a page fault, which this machine's is, within bounds. So the order is that of the
counts, but for things that cost nearly the same."""

from __future__ import annotations

import math
import mmap
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Tuple

from hakmem.analyze.observe import ALLOCATOR, LOADING, PROGRAM, START, Part
from hakmem.phrases import plural

if TYPE_CHECKING:
    from hakmem.analyze.observe import Observed

# What one event costs, in seconds: the order of magnitude on a processor at 3 GHz. Giving memory back includes what the
# kernel does for its pages. A wait includes being woken.
COSTS = {"call": 0.4e-6, "give back": 2e-6, "wait": 2e-6, "fault": 0.5e-6, "refill": 0.25e-6, "locked": 0.1e-6}
# Virtual machines differ from others by ten times.
FAULT_BOUNDS = 0.25e-6, 2.5e-6
# A refill of a class whose blocks are small takes so many.
BATCH = 64
SUPERSLAB = 2 << 20
# {option: its default}, of those that hold free memory back.
KEEPING = {"HAKMEM_SS_LRU_SIZE": 128, "HAKMEM_PURGE_DELAY": 500, "HAKMEM_HUGE_CACHE": 512 << 20}
FRONT = {"HAKMEM_FC_CAP": 256, "HAKMEM_CACHE_BYTES": 1 << 20, "HAKMEM_FC_REFILL": 64}
FREES = ("free", "cfree", "flush", "release", "_Zd", "delete")
PAGE = os.sysconf("SC_PAGESIZE")
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Bottleneck:
    """kind: one word for programs. count: events that would go. seconds: what they cost. share: of the processor time.
    remedy: the option or change that takes them away."""

    kind: str
    count: int
    seconds: float
    share: float
    what: str
    remedy: str


def number_of(value: str) -> float:
    """Returns the number that an option's text begins with, in its unit."""
    text = value.upper().removesuffix("IB") if value else ""
    factor = SUFFIXES.get(text[-1:], 1)
    try:
        return float(text.rstrip("KMGT")) * factor
    except ValueError:
        return math.inf


def lowered(settings: Mapping[str, str], defaults: Mapping[str, int]) -> list[str]:
    """Returns the settings that are below their defaults."""
    return [f"{name}={settings[name]}" for name, default in defaults.items()
            if name in settings and number_of(settings[name]) < default]


def undo(settings: Mapping[str, str], defaults: Mapping[str, int], otherwise: str) -> str:
    """Returns the remedy: unset what is set too low, else `otherwise`."""
    low = lowered(settings, defaults)
    return f"unset {' and '.join(low)}" if low else otherwise


def fault_price() -> float:
    """Returns the seconds that a page fault takes on this machine, within FAULT_BOUNDS."""
    pages = 1024
    prices = []
    for _ in range(3):
        with mmap.mmap(-1, pages * PAGE) as memory:
            started = time.perf_counter()
            for at in range(0, pages * PAGE, PAGE):
                memory[at] = 1
            prices.append((time.perf_counter() - started) / pages)
    return min(max(min(prices), FAULT_BOUNDS[0]), FAULT_BOUNDS[1])


def rank(seen: Observed, settings: Mapping[str, str], fault_s: float = COSTS["fault"]) -> list[Bottleneck]:
    """Returns the bottlenecks, the dearest first. settings: HAKMEM_* variables in force. fault_s: the price of a page
    fault."""
    prices, found = {**COSTS, "fault": fault_s}, []
    for kind, events, what, remedy in (*of_calls(seen, settings), *of_faults(seen), *of_front(seen, settings)):
        if count := sum(events.values()):
            seconds = sum(number * prices[name] for name, number in events.items())
            share = min(seconds / seen.cpu_s, 1.0) if seen.cpu_s else 0.0
            found.append(Bottleneck(kind, count, seconds, share, what, remedy))
    return sorted(found, key=lambda one: -one.seconds)


# Kind, {what happens, a key of COSTS: how often}, what, remedy.
Row = Tuple[str, Dict[str, int], str, str]


def most(rows: Counter[tuple[str, Part]]) -> str:
    """Returns the most frequent caller and its call as words."""
    ((name, part), count), *_ = rows.most_common(1)
    return f"{name} in {part.function or part.owner} ({count:,})"


def of_calls(seen: Observed, settings: Mapping[str, str]) -> Iterator[Row]:
    """Yields what system calls cost, by who makes them: frees, giving memory back, other calls of the allocator, the
    program, the start."""
    groups: dict[str, Counter[tuple[str, Part]]] = {}
    for name, part, back, count in seen.callers():
        if part.owner == ALLOCATOR:
            frees = any(word in part.entry for word in FREES)
            kind = "empties" if back else "locks" if name == "futex" else "frees" if frees else "other calls"
        else:
            kind = {PROGRAM: "program", LOADING: "start", START: "start"}[part.owner]
        groups.setdefault(kind, Counter())[name, part] += count
    for kind, rows in groups.items():
        count = sum(rows.values())
        events = {"give back" if kind == "empties" else "wait" if kind == "locks" else "call": count}
        if kind == "empties":
            again = seen.again
            yield (kind, {**events, "fault": again},
                   f"{plural(count, 'system call')} gave memory back that was empty, most by {most(rows)}; "
                   f"{plural(again, 'page fault')} brought pages back", undo(
                       settings, KEEPING, "HAKMEM_PURGE_DELAY=10000 and HAKMEM_SS_LRU_SIZE=4096 keep it for reuse"))
            continue
        what = f"{plural(count, 'system call')}, most {most(rows)}"
        if kind == "frees":
            counters = seen.stats["counters"] if seen.stats else {}
            away = counters.get("remote_out", 0) + counters.get("remote_locked", 0)
            foreign = f"; {away:,} blocks were freed by other threads than their own" if away else ""
            yield kind, events, f"free makes {what}{foreign}", \
                f"take the call out of {rows.most_common(1)[0][0][1].function}: a page map tells whose a block is"
        elif kind == "locks":
            yield kind, events, f"threads wait for each other: {what}", \
                "free blocks in the threads that allocated them, or in batches"
        elif kind == "other calls":
            yield kind, events, f"the allocator, most of all to get memory, makes {what}", \
                "HAKMEM_SS_PREWARM=N gets N SuperSlabs at once, before the program begins"
        elif kind == "program":
            yield kind, events, f"the program's own: {what}", "none of the allocator's"
        else:
            yield kind, events, f"the start of the process: {what}", \
                "a program that is linked statically loads no library"


def of_faults(seen: Observed) -> Iterator[Row]:
    """Yields what first touches of memory cost. Faults on pages that were there before count as empties, if any call
    gave memory back."""
    files = sum(count for part, count in seen.faults.items() if part.owner == LOADING)
    count = round(seen.figures["soft_faults"]) if not seen.faults else sum(seen.faults.values()) - files
    count = max(count - seen.again, 0)
    slabs = math.ceil(count * PAGE / SUPERSLAB)
    yield ("first touches", {"fault": count}, f"{plural(count, 'page fault')} of memory used first",
           f"HAKMEM_SS_PREWARM={slabs} takes them before the program begins; HAKMEM_THP=always takes 512 at a time")
    yield ("loading", {"fault": files}, f"{plural(files, 'page fault')} of files, stacks and variables",
           "Link the program statically")


def of_front(seen: Observed, settings: Mapping[str, str]) -> Iterator[Row]:
    """Yields what the thread caches cost: refills and flushes beyond those that the memory in use needs, and blocks
    that went back under a lock."""
    if not seen.stats:
        return
    refills = flushes = 0
    for one in seen.stats["classes"].values():
        kept = max(one["refilled_blocks"] - one["returned_blocks"], 0)
        refills += max(one["refills"] - math.ceil(kept / BATCH), 0)
        flushes += one["flushes"]
    yield ("front", {"refill": refills + flushes},
           f"{plural(refills, 'refill')} and {flushes:,} flushes of thread caches beyond those that "
           "the blocks in use need", undo(settings, FRONT, "HAKMEM_CACHE_BYTES=8M: more blocks in each thread's cache"))
    locked = seen.stats["counters"].get("remote_locked", 0)
    low = [f"HAKMEM_MF2_ENABLE={settings['HAKMEM_MF2_ENABLE']}"] if number_of(
        settings.get("HAKMEM_MF2_ENABLE", "1")) == 0 else []
    yield ("locked frees", {"locked": locked},
           f"{plural(locked, 'block')} went back to another thread's heap under its lock",
           f"unset {low[0]}" if low else "free blocks of 64 KiB and more in the threads that allocated them")
