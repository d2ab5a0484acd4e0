"""`hakmem heap --timeline`: what sites held over time, from repeated looks at a process or from files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.compat import zip_strict
from hakmem.heap.file import ProfileError, parse_profile, read_profile
from hakmem.heap.outside import TYPES, Look, Making, Values, look, sums_of
from hakmem.heap.show import print_title, title_of, value_text
from hakmem.heap.sites import Node, SiteKey, label, place_of, tree_of
from hakmem.heap.stacks import Frame, Heap, Stack, add_up, stacks_of
from hakmem.heap.symbolize import symbolize
from hakmem.screen import Table, make_console, spark

if TYPE_CHECKING:
    from hakmem.heap.source import AnySource, Process
    from hakmem.live.descriptor import Descriptor
    from hakmem.live.memory import ProcessMemory
    from hakmem.live.sites import HeapSites

# The sample types that a timeline shows, if the profile has them.
KINDS = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")
# Limits: moments of one timeline; bands of the chart; nodes of all flame graphs of the page together.
MOMENTS_MOST, BANDS, NODES_MOST = 3600, 10, 20_000
OTHERS = "all others"
# The pause after a look lasts at least this many times the look, so that looking takes at most half of the time.
REST = 1.0
SPARK_WIDTH = 40
# A narrow terminal gets fewer bars.
NARROW, NARROW_SPARK_WIDTH = 100, 12


@dataclass
class Timeline:
    """times: seconds since 1970. stacks: {frames, innermost first: for each moment a value for each kind}."""

    names: list[str]  # what it is of
    kinds: list[str]
    times: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)  # empty: it is not known
    stacks: dict[tuple[Frame, ...], list[Values]] = field(default_factory=dict)
    period: int = 0
    notes: list[str] = field(default_factory=list)

    def total(self, kind: int) -> list[int]:
        """Returns the total of a kind at each moment."""
        found = [0] * len(self.times)
        for rows in self.stacks.values():
            for moment, values in enumerate(rows):
                found[moment] += values[kind]
        return found

    def sites(self, kind: int) -> dict[SiteKey | None, tuple[str, str, list[int]]]:
        """Returns {site's label: (name, place, a figure for each moment)} of what functions allocate themselves."""
        found: dict[SiteKey | None, tuple[str, str, list[int]]] = {}
        for frames, rows in self.stacks.items():
            leaf = frames[0] if frames else None
            key = label(leaf, False) if leaf else None
            if key not in found:
                found[key] = (leaf.name if leaf else "(no stack)", place_of(leaf, False) if leaf else "",
                              [0] * len(self.times))
            for moment, values in enumerate(rows):
                found[key][2][moment] += values[kind]
        return found

    def bands(self, kind: int) -> list[tuple[str, str, list[int]]]:
        """Returns [(name, place, figures)] of the sites with most at any moment, most first, and of all others."""
        sites = sorted(self.sites(kind).values(), key=lambda site: (-max(site[2], default=0), site[0]))
        shown, rest = sites[:BANDS], sites[BANDS:]
        if rest:
            shown = [*shown, (OTHERS, "", [sum(values) for values in zip_strict(*(site[2] for site in rest))])]
        return shown


# ---- Of a process ----


def watch(source: Process, every: float, seconds: float, full: bool) -> Timeline:
    """Returns the Timeline of a process, until the time is over, the process ends or Ctrl-C is pressed."""
    from hakmem.live import LiveError, ProcessMemory, find

    try:
        memory = ProcessMemory(source.pid)
        descriptor = find(memory)
        looks, rss, note = looks_at(memory, descriptor, every, seconds)
    except LiveError as error:
        raise ProfileError(str(error)) from error
    return of_looks(looks, rss, [source.name], full, note)


def looks_at(memory: ProcessMemory, descriptor: Descriptor, every: float,
             seconds: float) -> tuple[list[Look], list[int], str]:
    """Returns (Looks, the RSS at each, why it ended early or "")."""
    from hakmem.live import LiveError

    looks: list[Look] = []
    rss: list[int] = []
    note = ""
    begun = time.monotonic()
    try:
        while len(looks) < MOMENTS_MOST:
            started = time.monotonic()
            seen = look(memory, descriptor)
            if looks and not follows(looks[-1].heap, seen.heap):
                note = "the heap profile was started or stopped, or the program became another: what came after is left out"
                break
            looks.append(seen)
            rss.append(memory.rss())
            if len(looks) == 1:
                click.echo(f"hakmem heap: looks at process {memory.pid} every {every:g} s for {seconds:g} s; Ctrl-C "
                           "ends it earlier", err=True)
            took = time.monotonic() - started
            told(len(looks), time.monotonic() - begun, seconds)
            left = begun + seconds - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(max(every - took, REST * took, 0), left))
    except KeyboardInterrupt:
        note = "ended by Ctrl-C"
    except LiveError as error:
        if not looks:
            raise
        note = str(error)
    told(0, 0, 0)
    return looks, rss, note


def follows(before: HeapSites, after: HeapSites) -> bool:
    """Returns whether the later look is at the same profile: it has all sites of the earlier one, and maybe more."""
    return (before.started_ns, before.generation) == (after.started_ns, after.generation) and [
        site.address for site in before.sites] == [site.address for site in after.sites[:len(before.sites)]]


def told(count: int, passed: float, seconds: float) -> None:
    """Shows the progress in one line, if standard error is a terminal."""
    if sys.stderr.isatty():
        text = f"\r{count:,} moments, {passed:.0f} of {seconds:g} s" if count else "\r\x1b[K"
        print(text, end="", file=sys.stderr, flush=True)


def of_looks(looks: list[Look], rss: list[int], names: list[str], full: bool, note: str) -> Timeline:
    """Returns the Timeline of looks at a process."""
    last = looks[-1]
    made = Making(last, "inuse_space", [("site", "count")])  # a sample is the number of its site
    for number, site in enumerate(last.heap.sites, 1):
        made.add(site.frames, {None: (number,)})
    profile = made.finished(0)
    if not profile.sample:
        raise ProfileError(f"{names[0]}: the profile is empty: it holds no samples; they are {last.heap.mean:,} bytes "
                           "apart in the "
                           "mean")
    profile = parse_profile(profile.SerializeToString(), names[0])
    notes = symbolize(profile)
    types = [name for name, _ in TYPES]
    places = [types.index(kind) for kind in KINDS]
    timeline = Timeline(names, list(KINDS), [seen.time_ns / 1e9 for seen in looks], rss, period=last.heap.mean,
                        notes=[*([note] if note else []), *notes])
    # A site's values are 0 before it existed.
    nothing = (0,) * len(types)
    by_site = [[
        sums_of(seen.heap, seen.heap.sites[number])
        if number < len(seen.heap.sites) else nothing for seen in looks
    ] for number in range(len(last.heap.sites))]
    for stack in stacks_of(profile, names[0], full, full):
        rows = [tuple(values[place] for place in places) for values in by_site[stack.values[0] - 1]]
        add_rows(timeline, stack.frames, rows)
    return timeline


def add_rows(timeline: Timeline, frames: tuple[Frame, ...], rows: list[Values]) -> None:
    """Adds a site's values to the stack of those frames."""
    known = timeline.stacks.get(frames)
    timeline.stacks[frames] = rows if known is None else [
        tuple(map(sum, zip_strict(one, other))) for one, other in zip_strict(known, rows)]


# ---- Of files ----


def of_files(paths: Sequence[Path], debug_folders: Sequence[Path], full: bool) -> Timeline:
    """Returns the Timeline of profiles that one process wrote, sorted by time."""
    if len(paths) < 2:
        raise ProfileError("a timeline takes a PID, or two files and more of one process")
    if len(paths) > MOMENTS_MOST:
        raise ProfileError(f"a timeline has {MOMENTS_MOST:,} moments at most, not {len(paths):,}")
    heaps: list[Heap] = []
    notes: list[str] = []
    for path in paths:
        profile = read_profile(path)
        notes += symbolize(profile, debug_folders, (path.stat().st_uid,))
        heap = add_up({path: profile}, full, full)
        if not heap.times:
            raise ProfileError(f"{path}: the profile does not say when it was taken")
        heaps.append(heap)
    heaps.sort(key=lambda heap: heap.times[0])
    types = [name for name, _ in heaps[0].types]
    kinds = [kind for kind in KINDS if kind in types]
    if not kinds or any(heap.types != heaps[0].types for heap in heaps):
        raise ProfileError(f"a timeline is of profiles with the sample types {', '.join(KINDS)}, the same in each")
    timeline = Timeline([path.name for path in paths], kinds, [heap.times[0].timestamp() for heap in heaps],
                        period=heaps[0].period, notes=list(dict.fromkeys(notes)))
    nothing = (0,) * len(kinds)
    for moment, heap in enumerate(heaps):
        for stack in heap.stacks:
            rows = timeline.stacks.setdefault(stack.frames, [nothing] * len(heaps))
            rows[moment] = tuple(now + stack.values[types.index(kind)] for now, kind in zip_strict(rows[moment], kinds))
    return timeline


# ---- Shown ----


def unit_of(kind: str) -> str:
    """Returns the unit of a kind."""
    return "count" if kind.endswith("objects") else "bytes"


def print_timeline(timeline: Timeline, number: int) -> None:
    """Prints the sites over time, those with most at any moment first."""
    unit = unit_of(timeline.kinds[0])
    console = make_console()
    first, last = (datetime.fromtimestamp(timeline.times[place], timezone.utc) for place in (0, -1))
    print_title(console, f"{title_of(timeline.kinds[0])} at {len(timeline.times):,} moments, "
                         f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC")
    table = Table()
    for head, spare in (("first", 2), ("most", 0), ("last", 1)):
        table.add_column(head, justify="right", no_wrap=True, spare=spare)
    table.add_column("over time", no_wrap=True)
    for head in ("site", "where"):
        table.add_column(head)
    bars = NARROW_SPARK_WIDTH if console.leaves_out and console.width < NARROW else SPARK_WIDTH
    total = timeline.total(0)
    rows = [("all", "", total)]
    if timeline.rss:
        rows.append(("RSS", "", timeline.rss))
    sites = sorted(timeline.sites(0).values(), key=lambda site: (-max(site[2]), site[0]))
    for name, place, values in [*rows, *(site for site in sites[:number] if max(site[2]))]:
        table.add_row(*(value_text(value, unit) for value in (values[0], max(values), values[-1])),
                      spark(thinned(values, bars), bars), name, place)
    console.print(table)


def thinned(values: Sequence[int], most: int) -> list[int]:
    """Returns at most that many values: the maximum of each stretch."""
    count = min(len(values), most)
    return [max(values[number * len(values) // count:(number + 1) * len(values) // count]) for number in range(count)]


def page_data(timeline: Timeline) -> dict[str, object]:
    """Returns the page's data. nodes: [parent, name, place, for each kind its changes: moment, value, moment,
    value...], parents first."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))
    width = len(timeline.kinds) * len(timeline.times)
    # All moments of all kinds side by side, so that the tree is made once.
    heap = Heap([("", "")] * width, [Stack(frames, tuple(value for kind in range(len(timeline.kinds)) for row in rows
                                                        for value in (row[kind],)), (0,) * width)
                                     for frames, rows in timeline.stacks.items()], [], 0, [])
    root = tree_of(heap, False)
    most = [
        max(root.values[kind * len(timeline.times):][:len(timeline.times)]) or 1 for kind in range(len(timeline.kinds))
    ]

    def share(node: Node) -> float:
        return max(max(node.values[kind * len(timeline.times):][:len(timeline.times)]) / most[kind]
                   for kind in range(len(timeline.kinds)))
    shares, unseen = [], [root]
    while unseen:
        node = unseen.pop()
        shares.append(share(node))
        unseen += node.children.values()
    least = sorted(shares, reverse=True)[NODES_MOST] if len(shares) > NODES_MOST else -1
    nodes: list[list[object]] = []
    waiting = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        waiting += [(child, len(nodes)) for child in node.children.values() if share(child) > least]
        nodes.append([
            parent,
            text(node.name),
            text(node.place),
            [
                changes(node.values[kind * len(timeline.times):][:len(timeline.times)])
                for kind in range(len(timeline.kinds))
            ]
        ])
    return {"kinds": [[kind, title_of(kind), unit_of(kind)] for kind in timeline.kinds], "times": timeline.times,
            "rss": timeline.rss or None, "nodes": nodes, "texts": list(texts),
            "leftOut": len(shares) - len(nodes),
            "bands": [[[name, place, values] for name, place, values in timeline.bands(kind)]
                      for kind in range(len(timeline.kinds))]}


def changes(values: Iterable[int]) -> list[int]:
    """Returns [moment, value, moment, value...] for each moment at which the value changes."""
    made: list[int] = []
    before = 0
    for moment, value in enumerate(values):
        if value != before:
            made += (moment, value)
            before = value
    return made


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Writes the timeline as one self-contained page."""
    from hakmem.document import CHART_SCRIPTS, CHART_STYLE, embedded, read, read_script, rendered
    from hakmem.heap.file import write_whole
    from hakmem.heap.graph import FOLDER, graph_scripts, graph_style

    first, last = (f"{datetime.fromtimestamp(timeline.times[place], timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
                   for place in (0, -1))
    total = timeline.total(0)
    unit = unit_of(timeline.kinds[0])
    more = f" and {len(timeline.names) - 1} more" if len(timeline.names) > 1 else ""
    facts = [("moments", f"{len(timeline.times):,}"), ("from", first), ("to", last),
             ("sampled",
              "every block" if timeline.period == 1 else f"every {value_text(timeline.period, 'bytes')} on average"),
             (f"{title_of(timeline.kinds[0]).lower()}, first", value_text(total[0], unit)),
             ("most", value_text(max(total), unit)), ("last", value_text(total[-1], unit))]
    text = rendered(
        FOLDER / "timeline.html", f"Heap of {timeline.names[0]}{more} over time",
        read(CHART_STYLE) + read(FOLDER / "heap.css") + graph_style()
        + read(FOLDER / "timeline.css"),
        [*map(read_script, CHART_SCRIPTS), *graph_scripts(), read_script(FOLDER / "timeline.js")],
        facts=facts, kinds=[(place, kind, title_of(kind)) for place, kind in enumerate(timeline.kinds)],
        last=len(timeline.times) - 1, data=embedded(page_data(timeline)))
    write_whole(path, text.encode())


def run(files: Sequence[AnySource], every: float, seconds: float, html: Path | None, number: int, full: bool,
        debug_folders: Sequence[Path]) -> None:
    """Runs the command."""
    from hakmem.heap.source import Address, Process
    from hakmem.heap.symbolize import Note, summary

    if isinstance(files[0], Process) and len(files) == 1:
        timeline = watch(files[0], every, seconds, full)
    else:
        paths = [source for source in files if not isinstance(source, (Address, Process))]
        if len(paths) < len(files):
            raise click.UsageError("--timeline takes one PID or NAME of a process, or FILEs")
        timeline = of_files(paths, debug_folders, full)
    names = [note for note in timeline.notes if isinstance(note, Note)]
    for note in [note for note in timeline.notes if not isinstance(note, Note)] + ([summary(names)] if names else []):
        click.echo(f"hakmem heap: {note}", err=True)
    if html:
        write_timeline(html, timeline)
        click.echo(html)
    else:
        print_timeline(timeline, number)
