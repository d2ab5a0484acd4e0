"""A result in the bench's format with invented figures. One allocator crashes in a row, one times out once."""

import functools
import json
from unittest import mock

import numpy as np

from hakmem.bench import statistics

SUBJECT, COPY = "hakmem", "hakmem-again"
# Allocator -> the middle of its time and memory relative to the subject's.
ALLOCATORS = {"hakmem": (1, 1), "hakmem-again": (1, 1), "glibc": (1.75, 0.93), "mimalloc3": (1.12, 1.62),
              "mimalloc2": (1.09, 1.3), "snmalloc": (1.11, 1.22), "rpmalloc": (1.2, 1.12), "jemalloc": (1.36, 1.1),
              "tcmalloc": (1.14, 1.41), "gperftools": (1.3, 1.36), "tbb": (1.42, 1.5), "hardened": (3.4, 1.05)}
DRIVERS = ("random-mixed-256", "random-mixed-4096", "random-mixed-100000", "tiny-1", "tiny-4", "larson-4",
           "producer-consumer", "cache-scratch", "cache-thrash", "sh6-lifo", "sh8-reverse", "pareto", "phases",
           "phases-large", "ring", "asymmetric", "string-builder", "vector-growth", "calloc-heavy", "aligned-heavy",
           "json", "mir", "big-1-64MiB", "fragmentation", "burst-idle", "thread-churn", "fork")
PROGRAMS = ("python-json", "python-ast", "sqlite", "redis", "gcc", "git", "lua", "perl")
ROUNDS = 7
# The page must show this as text, and never as markup.
HOSTILE = "<script>alert('x')</script>"


def quick_interval(values):
    """A bootstrap like hakmem.bench.statistics', with fewer samples: theirs takes 20 seconds for the full result."""
    values = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(1).choice(values, (200, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


@functools.cache
def full_text():
    with mock.patch.object(statistics, "interval", quick_interval):
        return json.dumps(make(DRIVERS, PROGRAMS, ROUNDS))


def full():
    return json.loads(full_text())


def small(name="other"):
    """Two rows, three allocators, two rounds. The peer has the given name."""
    allocators = {SUBJECT: (1, 1), COPY: (1, 1), name: (1.4, 1.2)}
    return make(DRIVERS[:1], PROGRAMS[:1], 2, allocators)


def make(drivers, programs, rounds, allocators=None):
    allocators = allocators or ALLOCATORS
    random = np.random.default_rng(20261121)
    rows = {name: {"group": group, "threads": 4 if name.endswith("-4") else 1, "command": f"bench_{name} 1000000 42",
                   "about": f"The made-up row {name}"}
            for group, names in (("driver", drivers), ("program", programs)) for name in names}
    samples = [sample(random, row, about, name, stand, number)
               for row, about, stands in row_stands(random, rows, allocators)
               for number in range(rounds) for name, stand in stands.items()]
    return {
        "format": "hakmem-bench 1", "date": "2026-11-21", "command": "hakmem bench --full --name synthetic",
        "commit": "7a3e5c7d00d1", "subject": SUBJECT,
        "options": {"rounds": rounds, "warm_mib": 1024, "rows": None, "scale": 1.0},
        "machine": {"cpu": "A Processor Of Its Own @ 2.80GHz", "cpus": 2, "memory": "24.0 GiB", "kernel": "6.1.0",
                    "libc": "glibc 2.36", "huge_pages": "madvise", "load_before": [0.1, 0.2, 0.1],
                    "load_after": [1.1, 1.0, 0.7]},
        "allocators": {name: {"library": f"/opt/lib{number}.so", "version": f"{number}.2.1", "source": "made up",
                              "sha256": f"{number:064x}"} for number, name in enumerate(allocators)},
        "rows": rows, "samples": samples, "calls": calls(random, rows, allocators),
        "instructions": [{"row": row, "allocator": name, "total": 10 ** 7, "per_op": float(random.uniform(30, 90))}
                         for row in drivers[:5] for name in allocators if name != COPY],
        "summary": statistics.summarize(samples, rows, list(allocators), SUBJECT, COPY)}


def row_stands(random, rows, allocators):
    """(row, its time and memory, {allocator: its ratio to the subject there})."""
    for row in rows:
        spread = {name: (1, 1) if name in (SUBJECT, COPY)
                  else (time * random.lognormal(0, 0.12), memory * random.lognormal(0, 0.15))
                  for name, (time, memory) in allocators.items()}
        yield row, (random.uniform(0.2, 0.9), random.uniform(3e3, 3e5)), spread


def sample(random, row, about, allocator, stand, number):
    base = {"row": row, "allocator": allocator, "round": number}
    if (row, allocator) == ("larson-4", "hardened"):
        return {**base, "status": "crashed", "detail": "SIGSEGV"}
    if (row, allocator, number) == ("fork", "tbb", 3):
        return {**base, "status": "timeout", "detail": "after 30 s"}
    time = about[0] * stand[0] * random.lognormal(0, 0.03)
    memory = about[1] * stand[1] * random.lognormal(0, 0.01)
    figures = {**base, "status": "ok", "time_s": time, "wall_s": time + 0.01, "user_s": time * 0.9, "sys_s": time * 0.1,
               "cpu_s": time, "peak_rss_kib": round(memory), "mean_rss_kib": round(memory * 0.7),
               "soft_faults": round(memory / 4), "hard_faults": 0, "ops": 1000000, "ns_per_op": time * 1000}
    if number == 0 and row in ("burst-idle", "thread-churn", "phases"):
        figures["idle_rss_kib"] = round(memory * random.uniform(0.05, 0.6))
    return figures


def calls(random, rows, allocators):
    found = []
    for row in rows:
        for name in allocators:
            if name != COPY and (row, name) != ("larson-4", "hardened"):
                memory = {call: int(random.integers(1, most)) for call, most in
                          (("mmap", 60), ("munmap", 30), ("madvise", 90))}
                found.append({"row": row, "allocator": name, "memory": memory, "memory_total": sum(memory.values())})
    return found
