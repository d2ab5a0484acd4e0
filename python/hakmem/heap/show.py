"""A heap profile in the terminal: what it is, its top sites, its tree."""

from rich.table import Table
from rich.text import Text

from hakmem.bench.table import make_console
from hakmem.heap.lifetimes import OF_LIVES, SPANS, duration_text, lives_of

UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TITLES = {"inuse_space": "Bytes in use", "inuse_objects": "Objects in use", "alloc_space": "Bytes allocated",
          "alloc_objects": "Objects allocated"}


def value_text(value, unit, signed=False):
    sign = "-" if value < 0 else "+" if signed and value > 0 else ""
    value = abs(value)
    if unit == "bytes":
        for name, size in UNITS:
            if value >= size:
                return f"{sign}{value / size:,.4g} {name}"
        return f"{sign}{value:,} B"
    return f"{sign}{value:,}" if unit in ("count", "") else f"{sign}{value:,} {unit}"


def share_text(value, total):
    return f"{100 * value / total:.1f} %" if total else "-"


def title_of(name):
    return TITLES.get(name, name)


def facts(heap, files, base):
    """[(name, value)] of the whole."""
    told = [("files" if len(files) > 1 else "file", ", ".join(map(str, files)))]
    if base:
        told.append(("against", str(base)))
    if heap.times:
        first, last = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (min(heap.times), max(heap.times)))
        told.append(("taken", first if first == last else f"{first} to {last}"))
    if heap.period > 1:
        told.append(("sampled", f"every {value_text(heap.period, 'bytes')} on average"))
    elif heap.period == 1:
        told.append(("sampled", "every block"))
    told += [(title_of(name).lower(), value_text(heap.total(place), unit, signed=heap.compared))
             for place, (name, unit) in enumerate(heap.types) if name not in OF_LIVES]
    lives = lives_of(heap, False)
    if lives:
        told.append(("objects freed", value_text(lives[None].freed, "count", signed=heap.compared)))
        told.append(("mean lifetime", duration_text(lives[None].mean())))
    told.append(("stacks", f"{len({stack.frames for stack in heap.stacks}):,}"))
    told += [("comment", text) for text in dict.fromkeys(heap.comments)]
    return told


def print_facts(heap, files, base):
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in facts(heap, files, base):
        table.add_row(Text(name, style="bold"), Text(value))
    console = make_console()
    console.print(table)
    console.print()


def print_sites(heap, sites, lives, index, number, whole):
    """The first sites as a table; whole: what shares are of; lives: of the sites, where the profile has them."""
    name, unit = heap.types[index]
    sites = [site for site in sites if site.flat_change(index) or site.cum_change(index)]
    if not sites:
        make_console().print(Text(f"{title_of(name)}{', change' if heap.compared else ''}: none", style="bold"))
        return
    names = [kind for kind, _ in heap.types]
    objects = name.replace("_space", "_objects")
    counted = names.index(objects) if objects != name and objects in names else None
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    share = "of base" if heap.compared else "share"
    for head in ("flat", share, "cum", share, *(["objects"] if counted is not None else [])):
        table.add_column(head, justify="right", no_wrap=True)
    if lives:
        table.add_column("mean life", justify="right", no_wrap=True)
    table.add_column("site", overflow="fold", ratio=3)
    table.add_column("where", overflow="fold", ratio=2)
    for site in sites[:number]:
        cells = []
        for value in (site.flat_change(index), site.cum_change(index)):
            cells += [value_text(value, unit, heap.compared), share_text(value, whole)]
        if counted is not None:
            cells.append(value_text(site.flat_change(counted), "count", heap.compared))
        if lives:
            cells.append(duration_text(lives[site.key].mean() if site.key in lives else None))
        table.add_row(*(Text(cell) for cell in (*cells, site.name, site.place)))
    console = make_console()
    more = f", the first {number} of {len(sites)} sites" if len(sites) > number else ""
    console.print(Text(f"{title_of(name)}{', change' if heap.compared else ''}{more}", style="bold"), soft_wrap=True)
    console.print(table)


def print_lifetimes(sites, lives, number):
    """How long what the first sites freed had lived: shares of it from each duration on to the next."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("freed", "mean", *(name for name, _ in SPANS)):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("site", overflow="fold")
    freed = [site for site in sites if site.key in lives]
    for site in freed[:number]:
        of_site = lives[site.key]
        table.add_row(*(Text(cell) for cell in (
            value_text(of_site.freed, "count"), duration_text(of_site.mean()),
            *(share_text(objects, of_site.freed) if objects else "" for objects in of_site.spans), site.name)))
    console = make_console()
    more = f", the first {number} of {len(freed)} sites" if len(freed) > number else ""
    console.print(Text(f"Lifetimes of what was freed, each column from its head to the next{more}", style="bold"),
                  soft_wrap=True)
    console.print(table)


def print_tree(heap, root, index, least, whole):
    """The tree of what is at least that percentage; a function that alone calls on stands at its caller's depth."""
    name, unit = heap.types[index]
    console = make_console()
    console.print(Text(f"{title_of(name)}{', change' if heap.compared else ''}, from the outermost function in",
                       style="bold"), soft_wrap=True)
    left_out = 0
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        console.print(Text(f"{value_text(node.change(index), unit, heap.compared):>12} "
                           f"{share_text(node.change(index), whole):>8}  {'  ' * depth}{node.name}"), soft_wrap=True)
        shown = sorted((child for child in node.children.values()
                        if abs(child.change(index)) * 100 >= least * abs(whole) and child.change(index)),
                       key=lambda child: (abs(child.change(index)), child.name))
        left_out += len(node.children) - len(shown)
        alone = len(shown) == 1 and shown[0].change(index) == node.change(index) and node is not root
        waiting += [(child, depth if alone else depth + 1) for child in shown]
    if left_out:
        console.print(Text(f"Left out: {left_out:,} branches below {least:g} % of the total", style="dim"))
