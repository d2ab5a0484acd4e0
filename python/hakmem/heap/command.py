"""The command `hakmem heap`: shows what heap profiles say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem.compat import zip_strict
from hakmem.heap.growth import Growth, Most
from hakmem.heap.labels import LabelParam, Wanted
from hakmem.heap.source import Address, AnySource, Process, Source
from hakmem.heap.switch import process_to_switch, switch_options
from hakmem.json_pieces import json_pieces
from hakmem.parameters import FILE, Range, debug_dir_option

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile
    from hakmem.heap.sites import Site
    from hakmem.heap.stacks import Heap
    from hakmem.heap.symbolize import Note

# The command ends after 900 seconds (cli.py).
SECONDS_MOST = 600
# How long a process is observed without --seconds.
TIMELINE_SECONDS = 30.0
# heap/why.py explains these words.
WHY = ("above", "rounding", "held", "untouched", "idle")


@click.command()
@click.option("--alloc", is_flag=True, help="Show all that was allocated, not what is in use.")
@click.option("--peak", is_flag=True, help="Show what was in use at the peak.")
@click.option("--objects", is_flag=True, help="Show numbers of objects, not bytes.")
@click.option("--sort", "by", type=click.Choice(["flat", "cum"]), default="flat", show_default=True,
              help="Sort by what a function allocates itself, or together with all that it calls.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Sites to show.")
@click.option("--lines", is_flag=True, help="Tell a function's lines apart.")
@click.option("--focus", metavar="REGEX", help="Take only stacks with a function, source file or library that matches.")
@click.option("--ignore", metavar="REGEX", help="Leave such stacks out.")
@click.option("--by-label", metavar="KEY",
              help="Show what each value of a label has; with --tree and --html, stacks below the values.")
@click.option("--label", "wanted", type=LabelParam(), multiple=True, metavar="KEY[=VALUE]",
              help="Take only what was allocated under a label: under any of the given values of each given key.")
@click.option("--hide", metavar="REGEX", help="Leave out frames that match; their callers get the figures.")
@click.option("--tree", "as_tree", is_flag=True, help="Show the tree of callers and callees in place of the sites.")
@click.option("--lifetimes", is_flag=True, help="Show how long each site's blocks lived until they were freed.")
@click.option("--temporary", is_flag=True,
              help="Show what part of each site's blocks their thread freed before its next N allocations.")
@click.option("--sizes", is_flag=True, help="Show how large the blocks of each site are.")
@click.option("--min", "least", type=Range(0, 100), default=1.0, show_default=True, metavar="PERCENT",
              help="The least share that --tree shows.")
@click.option("--diff", "base", type=Source(), metavar="BASE", help="Subtract the earlier profile BASE.")
@click.option("--fail-above", "most", type=Growth(), metavar="MOST",
              help="With --diff: end with 1 if the figure has grown by more than MOST, as 5% of the base or 10M.")
@click.option("--markdown", "summary", type=FILE, metavar="FILE",
              help="Append a summary to FILE. Default with --fail-above: the file that GITHUB_STEP_SUMMARY names.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--html", type=FILE, metavar="PAGE", help="Write a page with an interactive flame graph.")
@click.option("--symbolized", type=FILE, metavar="OUTPUT",
              help="Write the profile with names in it, so that pprof needs no binaries; of one FILE only.")
@click.option("--full", is_flag=True,
              help="Show names as they are: with templates, parameters and hashes, and the frames of "
                   "an interpreter, of its extension modules and of import.")
@click.option("--notes", "all_notes", is_flag=True, help="Print for each file what is missing, not one line for all.")
@debug_dir_option
@switch_options(start="Turn the profile on in a process that runs without one.", stop="Turn the profile off.",
                rate="With --start: mean bytes between samples, as 64K.  [default: the process's "
                     "HAKMEM_HEAP_PROFILE_RATE, 512K]")
@click.option("--seconds", type=Range(0.1, SECONDS_MOST), metavar="N",
              help="With --start: stop after N seconds, and show what was allocated in them; with --timeline: look for "
                   "so long.")
@click.option("--timeline", is_flag=True,
              help="Show what sites held over time: read from a PID every N seconds (--every), or from FILEs.")
@click.option("--every", type=Range(0.1, SECONDS_MOST), metavar="N",
              help="With --timeline: seconds from one look to the next.  [default: 1]")
@click.option("--why", is_flag=True, help="For a PID: tell why more is resident than the program asked for.")
@click.option("--pins", is_flag=True,
              help="For a PID: tell whose blocks keep free memory from going back, and what would help.")
@click.option("--of", "part", type=click.Choice(WHY), default=WHY[0], show_default=True,
              help="With --why: the kind of bytes that sites are sorted by, and that --tree and --html show.")
@click.option("--idle", type=Range(0.1, SECONDS_MOST), metavar="N",
              help="With --why: also show memory that did not change for N seconds.")
@click.argument("files", nargs=-1, required=True, type=Source(), metavar="FILE|PID|NAME|URL...")
@click.pass_context
def heap(ctx: click.Context, files: tuple[AnySource, ...], timeline: bool, every: float | None, why: bool,
         pins: bool, part: str, idle: float | None, start: bool, stop: bool, rate: int | None, seconds: float | None,
         alloc: bool, peak: bool, objects: bool, by: str, number: int, lines: bool, focus: str | None,
         ignore: str | None, by_label: str | None, wanted: tuple[Wanted, ...], hide: str | None, as_tree: bool,
         lifetimes: bool, temporary: bool, sizes: bool, least: float, base: AnySource | None, most: Most | None,
         summary: Path | None, as_json: bool, html: Path | None, symbolized: Path | None, full: bool, all_notes: bool,
         debug_folders: tuple[Path, ...]) -> None:
    """Tell where the memory of heap profiles is: top sites, tree, comparison, flame graph.

    FILE is a profile in pprof's format, as HAKMEM_HEAP_PROFILE writes it. PID is a process that takes a profile; it is
    read from outside. URL is a server's profile, such as that of hakmem serve at /debug/pprof/heap. Several are
    added up. --start and --stop write to the process, with a debugger's rights."""
    from hakmem.heap.file import ProfileError, write_profile
    from hakmem.heap.by_label import check, notes_of, rooted
    from hakmem.heap.source import read_source, read_sources
    from hakmem.heap.stacks import Expressions, add_up, compare, expression, select
    from hakmem.heap.symbolize import summary as one_line
    from hakmem.heap.symbolize import symbolize
    from hakmem.screen import make_console

    if timeline:
        from hakmem.heap.timeline import run

        if any((start, stop, why, pins, base, alloc, peak, as_json, as_tree, lifetimes, temporary, sizes, focus, ignore,
                hide, symbolized, summary, by_label, wanted)):
            raise click.UsageError("--timeline goes with --every, --seconds, --html, -n, --full and --debug-dir alone")
        run(files, every or 1.0, seconds or TIMELINE_SECONDS, html, number, full, debug_folders)
        return
    if every:
        raise click.UsageError("--every goes with --timeline")
    if seconds and not start:
        raise click.UsageError("--seconds goes with --start or --timeline")
    switched = process_to_switch(files, start, stop, rate)
    if switched and (stop or not seconds):
        from hakmem.heap import session

        session.stop(switched) if stop else session.start(switched, rate)
        return
    process = files[0] if len(files) == 1 and isinstance(files[0], Process) else None
    if (idle or part != WHY[0]) and not why:
        raise click.UsageError("--of and --idle go with --why")
    if part == "idle" and not idle:
        raise click.UsageError("--of idle takes --idle N")
    if why and pins:
        raise click.UsageError("--why and --pins are shown one at a time")
    seen_as = "--pins" if pins else "--why"
    if (why or pins) and (process is None or any((start, base, alloc, peak, objects, lifetimes, temporary, sizes))):
        raise click.UsageError(f"{seen_as} takes one PID or NAME of a process, and not --diff, --alloc, --peak, "
                               "--objects, --lifetimes, --temporary or --sizes")
    if symbolized and len(files) > 1:
        raise click.UsageError("--symbolized takes one FILE")
    if len(set(files)) < len(files):
        raise click.UsageError("a FILE is given twice")
    if most and not base:
        raise click.UsageError("--fail-above is for --diff")
    if alloc and peak:
        raise click.UsageError("--alloc and --peak are shown one at a time")
    chosen = [option for option, is_set in (("--tree", as_tree), ("--lifetimes", lifetimes), ("--temporary", temporary),
                                       ("--sizes", sizes)) if is_set]
    if by_label and chosen not in ([], ["--tree"]):
        raise click.UsageError(f"--by-label and {chosen[-1]} are shown one at a time")
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} are shown one at a time")
    if html in (*files, base, symbolized) and html:
        raise click.UsageError(f"--html would overwrite {html}")
    try:
        expressions = Expressions(*(expression(text, option) if text else None for option, text in (
            ("--focus", focus), ("--ignore", ignore), ("--hide", hide))))
    except ProfileError as error:
        raise click.UsageError(error.message) from error
    profiles: dict[AnySource, Profile]
    empty: list[AnySource] = []
    if process and start and seconds:
        from hakmem.heap.session import during

        profiles = {process: during(process, rate, seconds)}
    elif process and (why or pins):
        from hakmem.heap import pins as pinning
        from hakmem.heap.why import KINDS, look, print_why, stacks_of
        from hakmem.heap.why import as_data as why_data

        seen, profile = look(process, idle)
        profiles = {process: profile}
    else:
        profiles, empty = read_sources(files)
    before = {base: read_source(base)} if base else {}
    notes: list[Note] = []
    for source, profile in (*profiles.items(), *before.items()):
        notes += symbolize(profile, debug_folders, owners_of(source))
    if process and (why or pins):
        found = stacks_of(seen, profile, process, full or as_json, full)
    else:
        found = add_up(profiles, full or as_json, full)
    if empty:
        found.notes.append(f"{len(empty)} of {len(files)} profiles hold no samples, such as {empty[0]}")
        files = tuple(profiles)
    if base:
        found = compare(found, add_up(before, full or as_json, full))
    kind = "alloc" if alloc else "peak" if peak else "inuse"
    index = found.index(KINDS[part] if why else "kept_space" if pins else f"{kind}_{'objects' if objects else 'space'}")
    if not full:
        notes = without_interpreter(notes, [*profiles.values(), *before.values()])
    notes = list(dict.fromkeys(notes))
    for note in dict.fromkeys([*found.notes, *notes_of(found),
                               *(notes if all_notes else [one_line(notes)] if notes else [])]):
        click.echo(f"hakmem heap: {note}", err=True)
    check(found, by_label, wanted)
    whole, found = found, select(found, expressions, wanted)
    if not found.stacks:
        raise click.ClickException(f"no stack is left by "
                                   f"--focus{', --ignore and --label' if wanted else ' and --ignore'}")
    if symbolized:
        write_profile(profiles[files[0]], symbolized)
    if html:
        from hakmem.heap.page import write_page
        write_page(html, whole, rooted(found, by_label) if by_label else found, index, files, base, lines)
    if as_json:
        data = as_data(whole, found, files, base, lines, by_label)
        if why:
            data["why"] = why_data(seen, found, lines)
        if pins:
            data["pins"] = pinning.as_data(seen, found, whole, lines)
        for piece in json_pieces(data):
            click.echo(piece, nl=False)
    elif html or symbolized:
        for path in filter(None, (html, symbolized)):
            click.echo(path)
    elif pins and not as_tree:
        pinning.print_pins(make_console(), seen, found, whole, by, number, lines)
    elif why and not as_tree:
        print_why(make_console(), seen, found, part, by, number, lines)
    else:
        what = chosen[0][2:] if chosen else "sites"
        show(whole, found, index, files, base, by, number, lines, what, least, by_label)
    verdict = most.judge(found, index) if most else None
    if summary or most:
        from hakmem import markdown
        from hakmem.heap.show import markdown_of
        markdown.put(summary, markdown_of(found, index, files, base, by, number, lines, verdict))
    if verdict:
        click.echo(f"hakmem heap: {verdict[1]}", err=True)
        ctx.exit(verdict[0])


def without_interpreter(notes: list[Note], profiles: Iterable[Profile]) -> list[Note]:
    """Returns the notes, without those about an interpreter whose own frames are not shown."""
    from hakmem.heap.stacks import INTERPRETER, PYTHON

    if not any(profile.string_table[mapping.filename] == PYTHON for profile in profiles for mapping in profile.mapping):
        return notes
    return [note for note in notes if not INTERPRETER.match(note.subject)]


def owners_of(source: AnySource) -> tuple[int, ...]:
    """Returns the owner of a profile's file. Maps of code made at run time are trusted if the same user owns them."""
    if isinstance(source, (Process, Address)):
        return ()
    try:
        return (source.stat().st_uid,)
    except OSError:
        return ()


def show(whole: Heap, found: Heap, index: int, files: tuple[AnySource, ...], base: AnySource | None, by: str,
         number: int, lines: bool, what: str, least: float, by_label: str | None) -> None:
    """Prints what is asked for. whole: the profile, for shares. found: the stacks selected from it."""
    from hakmem.heap.by_label import rooted, rows_of
    from hakmem.heap.lifetimes import lives_of
    from hakmem.heap.show import (
        print_facts, print_labels, print_lifetimes, print_sites, print_sizes, print_temporary, print_tree)
    from hakmem.heap.sites import order, sites_of, tree_of
    from hakmem.heap.sizes import sizes_of
    from hakmem.heap.temporary import temporary_of

    lives = lives_of(found, lines)
    if what == "lifetimes" and not lives:
        raise click.ClickException("the profile tells no lifetimes: it has no sample types freed_objects and lifetime")
    temporary = temporary_of(found, lines) if what == "temporary" else {}
    if what == "temporary" and not temporary:
        raise click.ClickException("the profile does not tell which blocks were freed soon: it has no sample type "
                                   "own_freed_objects, or nothing was freed")
    of_sizes = sizes_of(found, lines) if what == "sizes" else {}
    if what == "sizes" and not of_sizes:
        raise click.ClickException("the profile tells no sizes: no sample has the label bytes")
    print_facts(whole, files, base)
    if what == "tree":
        print_tree(found, tree_of(rooted(found, by_label) if by_label else found, lines), index, least,
                   whole.measure(index))
        return
    if by_label:
        print_labels(found, rows_of(found, by_label), by_label, index, number, whole.measure(index))
        return
    sites = order(sites_of(found, lines), index, by, found.compared)
    if what == "lifetimes":
        print_lifetimes(sites, lives, number)
    elif what == "temporary":
        print_temporary(sites, temporary, number)
    elif what == "sizes":
        print_sizes(found, sites, of_sizes, index, number, whole.measure(index))
    else:
        print_sites(found, sites, lives, index, by, number, whole.measure(index))


def as_data(whole: Heap, found: Heap, files: tuple[AnySource, ...], base: AnySource | None, lines: bool,
            by_label: str | None) -> dict[str, object]:
    """Returns totals, every site and every stack by sample type, for JSON: sites and stacks as iterators."""
    from hakmem.heap.interval import Intervals
    from hakmem.heap.by_label import rows_of
    from hakmem.heap.lifetimes import SPANS, lives_of
    from hakmem.heap.show import total_errors
    from hakmem.heap.sites import sites_of
    from hakmem.heap.sizes import sizes_of
    from hakmem.heap.temporary import WITHIN, temporary_of

    names = [name for name, _ in found.types]
    intervals = Intervals(found)
    lives, sizes, temporary = lives_of(found, lines), sizes_of(found, lines), temporary_of(found, lines)

    def lived(site: Site) -> dict[str, object] | None:
        if site.key not in lives:
            return None
        of_site = lives[site.key]
        return {"freed": of_site.freed, "mean_ms": of_site.mean(),
                "spans": {name: objects for (name, _), objects in zip_strict(SPANS, of_site.spans)}}

    def freed_soon(site: Site) -> dict[str, object] | None:
        row = temporary.get(site.key)
        return {"freed": row.freed, "by_own_thread": row.own,
                "within": {str(most): objects for most, objects in zip_strict(WITHIN, row.within)}} if row else None

    def rounded(halves: Iterable[float]) -> dict[str, int]:
        return dict(zip_strict(names, map(round, halves)))

    def error_of(site: Site) -> dict[str, dict[str, int]]:
        flat, cum = zip_strict(*(site.errors(intervals, place) for place in range(len(names))))
        return {f"{kind}_error": rounded(halves) for kind, halves in (("flat", flat), ("cum", cum))}

    def changes(values: Iterable[int], before: Iterable[int]) -> dict[str, int]:
        return {name: value - other for name, value, other in zip_strict(names, values, before)}

    labels = {"by_label": {value: changes(row.values, row.base)
                           for value, row in rows_of(found, by_label).items()}} if by_label else {}
    return {
        **labels, "files": [str(path) for path in files], "base": str(base) if base else None,
        "times": [time.isoformat() for time in found.times], "period": found.period, "comments": found.comments,
        "types": dict(found.types), "totals": {name: whole.total(place) for place, name in enumerate(names)},
        "totals_error": rounded(total_errors(whole)),
        "selected": {name: found.total(place) for place, name in enumerate(names)}, "sites": ({
            "name": site.name, "where": site.place, "flat": changes(site.flat, site.flat_base),
            "cum": changes(site.cum, site.cum_base), **error_of(site), **({"lifetimes": lived(site)} if lives else {}),
            **({"temporary": freed_soon(site)} if temporary else {}),
            **({"sizes": {str(size): dict(zip_strict(names, values))
                          for size, values in sorted(sizes.get(site.key, {}).items())}} if sizes else {})
        } for site in sites_of(found, lines)), "stacks": ({
            "frames": [{"name": frame.name, "file": frame.file, "line": frame.line, "module": frame.module}
                       for frame in stack.frames], "values": changes(stack.values, stack.base),
            **({"labels": dict(stack.labels)} if stack.labels else {}),
            **({"size": stack.size} if stack.size is not None else {})
        } for stack in found.stacks)
    }
