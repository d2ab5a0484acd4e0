"""Advises on a process that runs on HAKMEM, from what it holds now and what it does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hakmem.live.descriptor import find
from hakmem.live.explain import Explanation, explain_process
from hakmem.live.heap import snapshot
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.live.memory import ProcessMemory
    from hakmem.live.model import Snapshot

# The choices of HAKMEM_PURGE_THREAD and HAKMEM_THP, by number in the library.
PURGE_THREAD = ("auto", "never", "always")
THP = ("auto", "never", "always")
# Counters that change if a program allocates and frees.
MOVING = ("refills", "flushes", "slabs_carved", "remote_blocks", "direct")
SHORT_DELAY = 100
# A saving below either of these is not worth an option.
LEAST_BYTES, LEAST_SHARE = 4 << 20, 0.05
# The most options that are advised at a time.
OPTIONS_MOST = 2
WHAT = {
    "live": "blocks that the program holds",
    "free": "free: it waits to be used again or to leave; malloc_trim gives it back at once",
    "cached": "free blocks in thread caches",
    "fragmentation": "free beside blocks in use: stays while those do",
    "huge_pages": "unused, on huge pages that are partly used",
    "metadata": "HAKMEM's own",
    "other": "not HAKMEM's: program, libraries, stacks, files",
}


@dataclass(frozen=True)
class Advice:
    """An option to set, and the measurement that supports it. saves: bytes, if the option is meant to save memory."""

    setting: str  # NAME=VALUE
    why: str
    saves: int = 0


@dataclass
class Findings:
    """A process on HAKMEM. parts: resident bytes by WHAT. rates: events per second by MOVING."""

    pid: int
    title: str
    seconds: float
    rss: int
    parts: dict[str, int]
    options: dict[str, int | str | None]
    rates: dict[str, float]
    idle: bool
    advice: list[Advice] = field(default_factory=list)


def parts_of(explained: Explanation) -> dict[str, int]:
    """Returns resident bytes by WHAT."""
    heap = dict(explained.heap)
    return {"live": heap["live"], "free": heap["retained"] + heap["free_in_slab"], "cached": heap["cached"],
            "fragmentation": heap["fragmentation"], "huge_pages": heap["huge_pages"], "metadata": heap["metadata"],
            "other": sum(explained.other.values())}


def look(memory: ProcessMemory, seconds: float) -> Findings:
    """Watches the process for some seconds and returns the Findings."""
    descriptor = find(memory)
    before = snapshot(memory, descriptor)
    started = time.monotonic()
    time.sleep(seconds)
    after = snapshot(memory, descriptor)
    took = max(time.monotonic() - started, 1e-3)
    explained = explain_process(memory)
    rates = {name: (after.counters[name] - before.counters[name]) / took for name in MOVING if name in after.counters}
    found = Findings(memory.pid, explained.title, took, explained.rss, parts_of(explained), after.options, rates,
                     idle=not any(rates.values()))
    found.advice = sorted(advice_on(found, after), key=lambda one: -one.saves)[:OPTIONS_MOST]
    return found


def worth(saved: float, whole: float) -> bool:
    """Returns whether a saving is worth an option."""
    return saved >= LEAST_BYTES and saved >= whole * LEAST_SHARE


def advice_on(found: Findings, shot: Snapshot) -> Iterator[Advice]:
    """Yields every Advice that the figures support."""
    parts, rss = found.parts, found.rss
    options = {name: value for name, value in found.options.items() if isinstance(value, int)}
    size = bytes_column
    if worth(parts["free"], rss):
        thread = PURGE_THREAD[options.get("purge_thread", 0)]
        delay = options.get("purge_delay", 0)
        if found.idle and thread != "always" and found.seconds * 1000 > delay:
            yield Advice("HAKMEM_PURGE_THREAD=always",
                         f"{size(parts['free'])} were free and still resident after {found.seconds:.1f} s in which the "
                         "process asked for no memory; then only the purge thread can give them back",
                         parts["free"])
        elif delay > SHORT_DELAY:
            yield Advice(f"HAKMEM_PURGE_DELAY={SHORT_DELAY}",
                         f"{size(parts['free'])} are free and go back after the delay of {delay} ms", parts["free"])
    if worth(parts["cached"], rss):
        threads = max(1, shot.totals.live_threads)
        now = options.get("cache_bytes", 1 << 20)
        wanted = max(16 << 10, now // 4)
        if wanted < now:
            yield Advice(f"HAKMEM_CACHE_BYTES={wanted >> 10}K",
                         f"the caches of {threads} threads hold {size(parts['cached'])} of free blocks",
                         parts["cached"] * 3 // 4)
    if worth(parts["huge_pages"], rss) and THP[options.get("thp", 0)] != "never":
        yield Advice(
            "HAKMEM_THP=never", f"{size(parts['huge_pages'])} are unused and resident only because they lie on "
            "huge pages with blocks", parts["huge_pages"])
