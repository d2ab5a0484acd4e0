"""`hakmem heap`: what a heap profile says."""

import json
from pathlib import Path

import click

from hakmem.heap.source import FILE, Source


@click.command()
@click.option("--alloc", is_flag=True, help="Show all that was allocated, not what is in use.")
@click.option("--objects", is_flag=True, help="Show numbers of objects, not bytes.")
@click.option("--sort", "by", type=click.Choice(["flat", "cum"]), default="flat", show_default=True,
              help="By what a function allocates itself, or with all that it calls.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Sites to show.")
@click.option("--lines", is_flag=True, help="Tell a function's lines apart.")
@click.option("--focus", metavar="REGEX", help="Only stacks with a function, source file or library that it matches.")
@click.option("--ignore", metavar="REGEX", help="No stacks with one that it matches.")
@click.option("--hide", metavar="REGEX", help="Leave out the frames that it matches; their callers get the figures.")
@click.option("--tree", "as_tree", is_flag=True, help="Show the tree of callers and callees in place of the sites.")
@click.option("--lifetimes", is_flag=True, help="Show how long what each site allocated lived until it was freed.")
@click.option("--min", "least", type=click.FloatRange(0, 100), default=1.0, show_default=True, metavar="PERCENT",
              help="The least share that --tree shows.")
@click.option("--diff", "base", type=Source(), metavar="BASE", help="Subtract an earlier profile.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--html", type=FILE, metavar="PAGE", help="Write a page with an interactive flame graph.")
@click.option("--symbolized", type=FILE, metavar="OUTPUT",
              help="Write the profile with names in it, so that pprof needs no binaries; of one FILE only.")
@click.option("--debug-dir", "debug_folders", multiple=True, metavar="FOLDER",
              type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where separate debug files are, besides /usr/lib/debug.")
@click.argument("files", nargs=-1, required=True, type=Source(), metavar="FILE|PID|URL...")
def heap(files, alloc, objects, by, number, lines, focus, ignore, hide, as_tree, lifetimes, least, base, as_json, html,
         symbolized, debug_folders):
    """Tell where the memory of heap profiles is: top sites, tree, comparison, flame graph.

    FILE is a profile in pprof's format, as HAKMEM_HEAP_PROFILE writes it; PID a process that takes one, which is read
    from outside; URL where a server has one, as hakmem serve at /debug/pprof/heap. Several are added up."""
    from hakmem.heap.file import ProfileError, write_profile
    from hakmem.heap.source import read_source
    from hakmem.heap.stacks import add_up, compare, expression, select
    from hakmem.heap.symbolize import symbolize

    if symbolized and len(files) > 1:
        raise click.UsageError("--symbolized takes one FILE")
    if len(set(files)) < len(files):
        raise click.UsageError("a FILE is given twice")
    if as_tree and lifetimes:
        raise click.UsageError("--tree and --lifetimes are shown one at a time")
    if html in (*files, base, symbolized) and html:
        raise click.UsageError(f"--html would overwrite {html}")
    try:
        expressions = [expression(text, option) if text else None
                       for option, text in (("--focus", focus), ("--ignore", ignore), ("--hide", hide))]
    except ProfileError as error:
        raise click.UsageError(error.message) from error
    profiles = {path: read_source(path) for path in files}
    before = {base: read_source(base)} if base else {}
    notes = []
    for profile in (*profiles.values(), *before.values()):
        notes += symbolize(profile, debug_folders)
    found = add_up(profiles)
    if base:
        found = compare(found, add_up(before))
    index = found.index(f"{'alloc' if alloc else 'inuse'}_{'objects' if objects else 'space'}")
    for note in dict.fromkeys(found.notes + notes):
        click.echo(f"hakmem heap: {note}", err=True)
    whole, found = found, select(found, *expressions)
    if not found.stacks:
        raise click.ClickException("no stack is left by --focus and --ignore")
    if symbolized:
        write_profile(profiles[files[0]], symbolized)
    if html:
        from hakmem.heap.page import write_page
        write_page(html, whole, found, index, files, base, lines)
    if as_json:
        click.echo(json.dumps(as_data(whole, found, files, base, lines), indent=1))
    elif html or symbolized:
        for path in filter(None, (html, symbolized)):
            click.echo(path)
    else:
        what = "tree" if as_tree else "lifetimes" if lifetimes else "sites"
        show(whole, found, index, files, base, by, number, lines, what, least)


def show(whole, found, index, files, base, by, number, lines, what, least):
    """whole: the profile, which shares are of; found: what is selected of it."""
    from hakmem.heap.lifetimes import lives_of
    from hakmem.heap.show import print_facts, print_lifetimes, print_sites, print_tree
    from hakmem.heap.sites import order, sites_of, tree_of

    lives = lives_of(found, lines)
    if what == "lifetimes" and not lives:
        raise click.ClickException("the profile tells no lifetimes: it has no sample types freed_objects and lifetime")
    print_facts(whole, files, base)
    if what == "tree":
        print_tree(found, tree_of(found, lines), index, least, whole.measure(index))
        return
    sites = order(sites_of(found, lines), index, by, found.compared)
    if what == "lifetimes":
        print_lifetimes(sites, lives, number)
    else:
        print_sites(found, sites, lives, index, number, whole.measure(index))


def as_data(whole, found, files, base, lines):
    """All of it for programs: totals, every site and every stack, by sample type."""
    from hakmem.heap.lifetimes import SPANS, lives_of
    from hakmem.heap.sites import sites_of

    names = [name for name, _ in found.types]

    lives = lives_of(found, lines)

    def lived(site):
        if site.key not in lives:
            return None
        of_site = lives[site.key]
        return {"freed": of_site.freed, "mean_ms": of_site.mean(),
                "spans": {name: objects for (name, _), objects in zip(SPANS, of_site.spans, strict=True)}}

    def changes(values, before):
        return {name: value - other for name, value, other in zip(names, values, before, strict=True)}
    return {
        "files": [str(path) for path in files], "base": str(base) if base else None,
        "times": [time.isoformat() for time in found.times], "period": found.period, "comments": found.comments,
        "types": dict(found.types), "totals": {name: whole.total(place) for place, name in enumerate(names)},
        "selected": {name: found.total(place) for place, name in enumerate(names)},
        "sites": [{"name": site.name, "where": site.place, "flat": changes(site.flat, site.flat_base),
                   "cum": changes(site.cum, site.cum_base), **({"lifetimes": lived(site)} if lives else {})}
                  for site in sites_of(found, lines)],
        "stacks": [{"frames": [{"name": frame.name, "file": frame.file, "line": frame.line, "module": frame.module}
                               for frame in stack.frames], "values": changes(stack.values, stack.base)}
                   for stack in found.stacks]}
