"""Makes docs/why.md: what the source documents measured and asked for, what answers it, and today's ratios.

The ratios come from the files in bench/results/: for each allocator the newest file that has the row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from hakmem import markdown, paths
from hakmem.report.figures import listed

PAGE = paths.CHECKOUT / "docs/why.md"
RESULTS = paths.CHECKOUT / "bench/results"
GOLDEN = paths.CHECKOUT / "tests/cost/golden/syscalls.txt"
PEERS = {"mimalloc3": "mimalloc 3", "mimalloc2": "mimalloc 2", "glibc": "glibc"}
# {figure: (column of the results, what the ratio is of)}. A ratio of speed is the other's time divided by HAKMEM's.
FIGURES = {"speed": ("time_ratio", "the speed"), "faults": ("faults_ratio", "the page faults"),
           "peak": ("peak_rss_ratio", "the peak RSS")}


@dataclass(frozen=True)
class Section:
    """A part of the source documents. answer: Markdown. rows: (figure, row of the benchmarks); figure `calls` is the
    golden count of memory system calls."""

    name: str
    measured: str
    asked: str
    answer: str
    rows: tuple[tuple[str, str], ...] = ()


SECTIONS = (
    Section("drop-in malloc", "wrappers of malloc over `hak_*`", "a call that is tagged with its site, `hak_alloc_at`",
            "[hakmem.h](../include/hakmem/hakmem.h), the [heap profile](profile.md)"),
    Section("tiny front", "4.1 M operations a second, 0.034 of mimalloc's speed; 2.5 % of the calls on the fast path",
            "a cache that two branches pop; 95 % hits", "[front/fast.h](../src/front/fast.h), `HAKMEM_FC_CAP`",
            (("speed", "random-mixed-256"),)),
    Section("refill", "38,412 cycles for 16 blocks", "one batch in place of 16 slow calls",
            "[pool/take.c](../src/pool/take.c), [cycles.md](dev/cycles.md), `HAKMEM_FC_REFILL`",
            (("speed", "random-mixed-4096"),)),
    Section("free", "not on the fast path, not instrumented", "the same cache and the same counters as malloc's",
            "[front/fast.h](../src/front/fast.h)", (("speed", "batches-lifo"),)),
    Section("two directions", "27 % faster with one thread, 5 % slower with many; 0.23 of glibc's speed in larson",
            "separate lists; a lock-free queue of remote frees; a drain in malloc's slow path",
            "[pool/remote.c](../src/pool/remote.c), `HAKMEM_MF2_*`", (("speed", "larson-4"),)),
    Section("SuperSlab", "877 SuperSlabs, one for each class", "one SuperSlab for many classes, 100 to 200 in all",
            "[superslab.h](../src/superslab/superslab.h)", (("peak", "random-mixed-100000"),)),
    Section("registry", "`mincore` on unknown pointers took 94 % of the throughput; a look-up for each block "
            "of a refill", "no system call for a pointer", "[superslab/window.h](../src/superslab/window.h)"),
    Section("shared pool and tiers", "three takings of the lock for a prefill; caching the tier check cost 0.9 and "
            "2.3 %", "several slabs under one lock", "[superslab/shared_pool.c](../src/superslab/shared_pool.c), "
            "[superslab/tiers.c](../src/superslab/tiers.c)"),
    Section("warm pool", "0 % hits, then 55.6 % with a prefill", "a budget that adapts by class",
            "[pool/take.c](../src/pool/take.c), `HAKMEM_WARM_POOL_STATS`"),
    Section("LRU of empties, prewarm", "3,241 `mmap`, 3,214 `munmap`, 1,591 `madvise`, 1,591 `mincore` and 59,659 page "
            "faults in 200,000 operations at 4,096 live blocks", "a cache of empty SuperSlabs that works",
            "[superslab/footprint.h](../src/superslab/footprint.h), `HAKMEM_SS_LRU_SIZE`, `HAKMEM_SS_PREWARM`",
            (("calls", "random_mixed 200000 4096"), ("faults", "random-mixed-4096"), ("peak", "random-mixed-4096"))),
    Section("L2 pool, MF2", "76 % fast hits", "pages with an owner, pending queues, adoption, counters",
            "[pool/remote.c](../src/pool/remote.c), `HAKMEM_MF2_*`, [statistics.md](statistics.md)",
            (("speed", "documents-mf2"), ("speed", "mf2"))),
    Section("L2.5 pool", "1.11 of mimalloc's speed at 64 KiB, 1.10 at 256 KiB", "nothing: the one place that won",
            "spans, [pool/slab.h](../src/pool/slab.h)", (("speed", "fixed-64KiB"), ("speed", "fixed-256KiB"))),
    Section("counters", "compiled in with `HAKMEM_DEBUG_COUNTERS`", "early returns, stages of refills and frees",
            "[statistics.md](statistics.md)"),
    Section("cycle profile", "about 10 cycles each around malloc, free, refill, migration", "`HAKMEM_TINY_PROFILE=1`",
            "[cycles.md](dev/cycles.md)"),
    Section("page faults", "soft and hard faults, change of RSS, a Bloom filter of touched pages", "the same",
            "[statistics.md](statistics.md#page-faults)"),
    Section("build flavours", "`make TARGET BUILD_FLAVOR=release`", "no diagnostics on release's hot paths",
            "[CONTRIBUTING.md](../CONTRIBUTING.md#checks), [golden counts](../tests/cost/golden)"),
    Section("lazy zeroing", "most page faults are first touches", "zeroing ahead, in batches, only where needed",
            "`HAKMEM_POPULATE`, [superslab/arrival.h](../src/superslab/arrival.h)", (("faults", "calloc"),
                                                                                     ("speed", "calloc"))),
    Section("adaptivity", "fixed capacities", "capacity by call site, prefill by the hits of a class",
            "[front/thread_cache.c](../src/front/thread_cache.c); [options.md](options.md) has the defaults"),
    Section("benchmarks", "0.17 of mimalloc's speed in string-builder; 677 M operations a second with four threads at "
            "16 B", "`bench_random_mixed`, `larson`, `bench_tiny_mt`, `bench_allocators`, `test_mf2`, profiles",
            "[bench/README.md](../bench/README.md)", (("speed", "string-builder"), ("speed", "tiny-16B-1"),
                                                      ("speed", "tiny-16B-4"), ("speed", "documents-json"),
                                                      ("speed", "documents-mir"), ("speed", "documents-mixed"))),
    Section("analysis", "a table of system calls, hardware counters, a ranking of hot spots", "the same, by hand",
            "[hakmem analyze](compare.md#analyze)"),
)
TEXT = """\
# Why HAKMEM is as it is

The source documents are the reports of an earlier allocator of this name: what it measured, and the redesign that it
called for. This page says, for each of their subjects, what answers it here, and how it compares today.
`hakmem bench why` makes the page from `bench/results`; change `python/hakmem/bench/why.py`, not this file.

A ratio is HAKMEM's figure divided by the other allocator's, of the newest result that has both, whose date stands
behind it. A ratio of the speed above 1 means that HAKMEM is faster. The documents' ratios come from their own machine.

{table}
"""


def measured() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields (date, line) of each result that compares HAKMEM with a peer, the oldest first."""
    for file in sorted(RESULTS.glob("*.csv")):
        lines = file.read_text(encoding="utf-8").splitlines()
        head = [line for line in lines if line.startswith("#")]
        if head[:1] != ["# format: hakmem-bench 1"] or "# subject: hakmem" not in head:
            continue
        for line in csv.DictReader(lines[len(head):]):
            if line.get("allocator") in PEERS and line.get("status") == "ok":
                yield file.name[:10], line


def ratios(lines: Iterable[tuple[str, dict[str, str]]]) -> dict[tuple[str, str, str], tuple[float, str]]:
    """Returns {(row, allocator, figure): (ratio, date)}, of the newest result that has it."""
    found = {}
    for date, line in lines:
        for figure, (column, _) in FIGURES.items():
            if text := line.get(column):
                ratio = float(text)
                found[line["row"], line["allocator"], figure] = (1 / ratio if figure == "speed" else ratio, date)
    return found


def today(section: Section, found: dict[tuple[str, str, str], tuple[float, str]]) -> str:
    """Returns the cell of a section's figures."""
    cells = []
    for figure, row in section.rows:
        if figure == "calls":
            line = re.search(rf"^{re.escape(row)} +(\d+)", GOLDEN.read_text(), re.MULTILINE)
            cells.append(f"{line[1]} memory system calls beyond a bare start" if line else f"{row}: not counted")
            continue
        by_date: dict[str, list[str]] = {}
        for peer, name in PEERS.items():
            if (row, peer, figure) in found:
                ratio, date = found[row, peer, figure]
                by_date.setdefault(date, []).append(f"{ratio:.2f} of {name}'s")
        told = ", ".join(f"{listed(texts)} ({date})" for date, texts in by_date.items())
        cells.append(f"{row}, {FIGURES[figure][1]}: {told or 'none measured'}")
    return "; ".join(cells) or "none measured"


def page() -> str:
    """Returns the text of docs/why.md."""
    found = ratios(measured())
    lines = markdown.table(("subject", "they measured", "they asked for", "what answers it", "today"), [])
    lines += [f"| {one.name} | {one.measured} | {one.asked} | {one.answer} | {today(one, found)} |" for one in SECTIONS]
    return TEXT.format(table="\n".join(lines))


@click.command("why")
@click.option("--write", is_flag=True, help="Write docs/why.md.")
def why(write: bool) -> None:
    """Print docs/why.md: the source documents' subjects, what answers them, and today's ratios."""
    if write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        click.echo(page(), nl=False)
