"""The page of `hakmem analyze`: sections that are printed, drawn as HTML, or given as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hakmem.analyze.bottlenecks import Bottleneck
from hakmem.bench.table import memory_text, print_table, seconds_text
from hakmem.document import read, rendered
from hakmem.live.map import FOLDER as STYLE
from hakmem.screen import Text

if TYPE_CHECKING:
    from hakmem.analyze.observe import Observed
    from hakmem.screen import Console

TEMPLATE = Path(__file__).with_name("page") / "analyze.html"
WORDS = "table .words { text-align: left; white-space: normal; }"
# Rows that a section shows at most. JSON has all.
ROWS = 12


@dataclass
class Section:
    """A table. left: the columns of words."""

    title: str
    head: Sequence[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)


@dataclass
class Analysis:
    """What was found out about a program. seen: the subject first, then the allocators beside it."""

    command: Sequence[str]
    settings: dict[str, str]
    seen: list[Observed]
    bottlenecks: list[Bottleneck]

    @property
    def title(self) -> str:
        """The command line."""
        return " ".join([*(f"{name}={value}" for name, value in self.settings.items()), shlex.join(self.command)])

    @property
    def notes(self) -> list[str]:
        """What could not be seen, on any allocator."""
        own, *others = self.seen
        return own.notes + [f"{one.name}: {note}" for one in others for note in one.notes if note not in own.notes]


def share(part: float, whole: float) -> str:
    """Returns a part of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def lines_of(found: Analysis) -> list[str]:
    """Returns the sentences above the tables."""
    own = found.seen[0]
    figures = own.figures
    told = [f"{own.throughput}" if own.throughput else "It does not say its throughput",
            f"{seconds_text(figures['wall_s'])} by the clock, {seconds_text(own.cpu_s)} of processor time",
            f"peak RSS {memory_text(figures['peak_rss_kib'])}",
            f"{figures['soft_faults']:,.0f} soft and {figures['hard_faults']:,.0f} hard page faults"]
    return [f"On {own.name}: {'; '.join(told)}."]


def sections_of(found: Analysis) -> Iterator[Section]:
    """Yields the page's tables."""
    own = found.seen[0]
    yield Section("Bottlenecks, by what each would give back at most", ["", "kind", "events", "of the time", "what",
                                                                        "what takes it away"],
                  [[str(place), one.kind, f"{one.count:,}", share(one.share, 1), one.what, one.remedy]
                   for place, one in enumerate(found.bottlenecks, 1)], left=(1, 4, 5))
    if len(found.seen) > 1:
        yield beside(found.seen)
    if own.calls:
        yield calls_section(own)
    if own.made:
        rows = sorted(own.callers(), key=lambda row: (-row[3], row))
        yield Section("Who made them", ["call", "by", "count"],
                      [[name, part.text(), f"{count:,}"] for name, part, _, count in rows[:ROWS]], left=(0, 1))
    if own.faults:
        total = sum(own.faults.values())
        yield Section(f"Page faults by part: {total:,}, of which {own.faults_again:,} brought pages back",
                      ["part", "faults", "share"], [[part.text(), f"{count:,}", share(count, total)]
                                                    for part, count in own.faults.most_common(ROWS)])
    if own.counters:
        counters = own.counters
        rows_of = [[name, f"{count:,.0f}"] for name, count in counters.items()]
        if counters.get("cycles"):
            rows_of.append(["instructions a cycle", f"{counters.get('instructions', 0) / counters['cycles']:.2f}"])
        yield Section("Counters of the processor and the kernel", ["", "count"], rows_of)
    if own.instructions and own.instructions["total"]:
        whole, inside = own.instructions["total"], own.instructions["library"]
        rows_in = [["whole program", f"{whole:,}", ""], ["allocator", f"{inside:,}", share(inside, whole)]]
        if own.instructions["ops"]:
            rows_in.append(["allocator, an operation", f"{inside / own.instructions['ops']:.1f}", ""])
        yield Section("Instructions, by callgrind", ["", "count", "share"], rows_in)
    if own.cycles:
        kinds = own.cycles["kinds"]
        total = sum(kind["sum"] for name, kind in kinds.items() if name.startswith(("malloc_", "free_", "realloc_")))
        yield Section("Cycles by part (ticks of the clock)", ["part", "count", "mean", "p50", "p99", "share"], [
            [name, f"{kind['count']:,}", str(kind["mean"]), str(kind["p50"]), str(kind["p99"]),
             share(kind["sum"], total)] for name, kind in kinds.items() if kind["count"]])
    if own.stats:
        yield hits_section(own.stats["counters"], own.cycles)


def calls_section(own: Observed) -> Section:
    """Returns the table of system calls."""
    total = sum(tally.seconds for tally in own.calls.values())
    count = sum(tally.count for tally in own.calls.values())
    rows = sorted(own.calls.items(), key=lambda item: (-item[1].count, item[0]))
    return Section(f"System calls: {count:,}", ["call", "count", "errors", "time", "share of the time in calls"],
                   [[name, f"{tally.count:,}", str(tally.errors or ""), seconds_text(tally.seconds),
                     share(tally.seconds, total)] for name, tally in rows])


def hits_section(counters: dict[str, Any], cycles: dict[str, Any] | None) -> Section:
    """Returns the table of hits. Those of thread caches are known if the cycle profile or HAKMEM_FRONT_STATS=1 counted
    them."""
    rows = []
    for title, name, hits, misses in (("thread caches, malloc", "malloc", "malloc_hits", "malloc_misses"),
                                      ("thread caches, free", "free", "free_hits", "free_overflows")):
        exact = cycles["coverage"][name] if cycles else None
        hit, missed = (exact["hits"], exact["calls"] - exact["hits"]) if exact else (
            counters.get(hits), counters[misses])
        rows.append([title, "-" if hit is None else f"{hit:,}", f"{missed:,}",
                     "-" if hit is None else share(hit, hit + missed)])
    for title, hits, asked in (("warm pool", "warm_hits", counters["warm_hits"] + counters["warm_misses"]),
                               ("empty SuperSlabs, used again", "lru_reused", counters["lru_entered"]),
                               ("huge blocks, used again", "huge_reused", counters["huge_allocated"])):
        rows.append([title, f"{counters[hits]:,}", f"{asked - counters[hits]:,}", share(counters[hits], asked)])
    return Section("Hits by part", ["part", "hits", "misses", "share"], rows)


def beside(seen: Sequence[Observed]) -> Section:
    """Returns the table of allocators side by side. Times are of one run each."""
    texts: dict[str, Callable[[Observed], str]] = {
        "throughput": lambda one: one.throughput or "-",
        "time by the clock (one run)": lambda one: seconds_text(one.figures["wall_s"]),
        "processor time (one run)": lambda one: seconds_text(one.cpu_s),
        "peak RSS": lambda one: memory_text(one.figures["peak_rss_kib"]),
        "page faults": lambda one: f"{one.figures['soft_faults']:,.0f}",
        "system calls": lambda one: f"{sum(tally.count for tally in one.calls.values()):,}" if one.calls else "-",
        "memory calls": lambda one: "-" if one.memory_calls is None else f"{one.memory_calls:,}",
        "instructions": lambda one: f"{one.instructions['total']:,}" if one.instructions and one.instructions["total"]
        else "-",
    }
    return Section("Side by side", ["", *(one.name for one in seen)],
                   [[title, *map(text, seen)] for title, text in texts.items()])


def print_page(console: Console, found: Analysis) -> None:
    """Prints the page."""
    for line in (found.title, *lines_of(found)):
        console.print(line, soft_wrap=True)
    console.print()
    ranked, *sections = sections_of(found)
    console.print(Text(ranked.title, style="bold"), soft_wrap=True)
    for place, kind, count, part, what, remedy in ranked.rows:
        console.print(f"{place}. {kind} ({count} events, {part} of the time): {what}. {remedy}.", soft_wrap=True)
    console.print()
    for section in sections:
        print_table(console, section.title, section.head, section.rows, left=section.left)
    for note in found.notes:
        console.print(f"Not seen: {note}", soft_wrap=True)


def html(found: Analysis) -> str:
    """Returns the page as HTML."""
    return rendered(TEMPLATE, found.title, read(STYLE / "map.css") + WORDS, [], lines=lines_of(found),
                    sections=list(sections_of(found)), notes=found.notes)


def data_of(one: Observed) -> dict[str, Any]:
    """Returns what was seen on an allocator as values for JSON."""
    return {
        "allocator": one.name, "throughput": one.throughput or None, "figures": one.figures,
        "calls": [{"call": name, **asdict(tally), "by": [
            {**asdict(part), "count": count, "gives_back": back}
            for made, part, back, count in one.callers() if made == name]}
            for name, tally in one.calls.items()],
        "faults": [{**asdict(part), "count": count} for part, count in one.faults.most_common()],
        "faults_again": one.faults_again, "counters": one.counters, "instructions": one.instructions,
        "cycles": one.cycles, "statistics": one.stats, "notes": one.notes}


def page_dict(found: Analysis) -> dict[str, Any]:
    """Returns the page as values for JSON."""
    own, *others = found.seen
    return {"kind": "analysis", "command": list(found.command), "settings": found.settings, **data_of(own),
            "bottlenecks": [asdict(one) for one in found.bottlenecks],
            "against": {one.name: data_of(one) for one in others}, "summary": lines_of(found)}
