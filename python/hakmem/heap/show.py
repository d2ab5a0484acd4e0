"""Prints a heap profile in the terminal: its facts, its top sites, its tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hakmem.heap.interval import TOTALS, Intervals, Variances, added, error_text
from hakmem.heap.by_label import Row, keys_of, ordered
from hakmem.heap.by_label import cell as labels_cell
from hakmem.compat import zip_strict
from hakmem.heap.lifetimes import OF_LIVES, SPANS, Lives, duration_text, lives_of
from hakmem.heap.sizes import spread
from hakmem.heap.temporary import HEADS, Temporary, ranked
from hakmem.screen import Console, Table, Text, make_console
from hakmem.units import bytes_text

if TYPE_CHECKING:
    from hakmem.heap.sites import Node, Site, SiteKey
    from hakmem.heap.source import AnySource
    from hakmem.heap.stacks import Heap

# The longest bar of a size, in cells.
BAR = 20
TITLES = {"inuse_space": "Bytes in use", "inuse_objects": "Objects in use", "alloc_space": "Bytes allocated",
          "alloc_objects": "Objects allocated", "peak_space": "Bytes in use at the peak",
          "peak_objects": "Objects in use at the peak",
          "above_space": "Above what was asked for", "rounding_space": "Rounding", "held_space": "Held",
          "held_slabs": "Slabs held", "held_superslabs": "SuperSlabs held", "untouched_space": "Untouched",
          "idle_space": "Idle", "kept_space": "Kept by blocks in use", "kept_huge_space": "Kept on huge pages",
          "kept_header_space": "Headers kept"}


def value_text(value: int, unit: str, signed: bool = False) -> str:
    """Returns a figure as a text with its unit."""
    sign = "-" if value < 0 else "+" if signed and value > 0 else ""
    value = abs(value)
    if unit == "bytes":
        return f"{sign}{bytes_text(value)}"
    return f"{sign}{value:,}" if unit in ("count", "") else f"{sign}{value:,} {unit}"


def share_text(value: int, total: int) -> str:
    """Returns a share as a text in percent."""
    return f"{100 * value / total:.1f} %" if total else "-"


def title_of(name: str) -> str:
    """Returns the title of a sample type."""
    return TITLES.get(name, name)


def facts(heap: Heap, files: Sequence[object], base: object | None) -> list[tuple[str, str]]:
    """Returns [(name, value)] about the whole profile."""
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
    if heap.live is not None and not heap.compared:
        exact = value_text(heap.live, "bytes")
        told.append(("in use, exact", f"{exact}, as hakmem look --explain counts; samples divide it"))
    errors = total_errors(heap)
    told += [(title_of(name).lower(), value_text(heap.total(place), unit, signed=heap.compared)
              + error_text(heap.total(place), errors[place], unit))
             for place, (name, unit) in enumerate(heap.types) if name not in OF_LIVES]
    lives = lives_of(heap, False)
    if lives:
        told.append(("objects freed", value_text(lives[None].freed, "count", signed=heap.compared)))
        told.append(("freed after", f"{duration_text(lives[None].mean())} on average"))
    told.append(("stacks", f"{len({stack.frames for stack in heap.stacks}):,}"))
    labels = keys_of(heap)
    if labels:
        told.append(("labels", ", ".join(f"{key} ({len(values):,})" for key, values in labels.items())))
    # Of many profiles, what is said of one alone would fill a screen.
    told += [("comment", text) for text, times in Counter(heap.comments).items()
             if not TOTALS.match(text) and (times > 1 or len(files) == 1)]
    return told


def total_errors(heap: Heap) -> list[float]:
    """Returns the half of the interval of each total."""
    intervals = Intervals(heap)
    variance: Variances = ()
    for stack in heap.stacks:
        variance = added(variance, stack.variances)
    sums = [sum(stack.values[place] + stack.base[place] for stack in heap.stacks) for place in range(len(heap.types))]
    return [intervals.half(place, sums, variance) for place in range(len(heap.types))]


def print_title(console: Console, title: str) -> None:
    """Prints a table's title. A file gets it as one line."""
    console.print(Text(title, style="bold"), soft_wrap=not console.leaves_out)


def print_first(table: Table, title: str, number: int, count: int, what: str = "sites") -> None:
    """Prints a table of the first `number` of `count` rows, below its title."""
    console = make_console()
    print_title(console, title + (f", the first {number} of {count} {what}" if count > number else ""))
    console.print(table)


def print_facts(heap: Heap, files: Sequence[AnySource], base: AnySource | None) -> None:
    """Prints the facts about the profile."""
    table = Table(show_header=False)
    for name, value in facts(heap, files, base):
        table.add_row(Text(name, style="bold"), Text(value))
    console = make_console()
    console.print(table)
    console.print()


def print_sites(heap: Heap, sites: Sequence[Site], lives: dict[SiteKey | None, Lives], index: int, by: str,
                number: int, whole: int) -> None:
    """Prints the first sites as a table. whole: the total that shares are taken of. lives: the lifetimes of the
    sites, if the profile has them."""
    name, unit = heap.types[index]
    title = title_of(name) + (", change" if heap.compared else "")
    sites = [site for site in sites if site.flat_change(index) or site.cum_change(index)]
    if not sites:
        make_console().print(Text(f"{title}: none", style="bold"))
        return
    counted = heap.objects_of(index)
    table = Table()
    share = "of base" if heap.compared else "share"
    for figure in ("flat", "cum"):
        # The figure that sorts the sites stays, and its share goes last.
        table.add_column(figure, justify="right", no_wrap=True, spare=0 if figure == by else 3)
        table.add_column(share, justify="right", no_wrap=True, spare=1 if figure == by else 3)
    if counted is not None:
        table.add_column("objects", justify="right", no_wrap=True, spare=5)
    if lives:
        table.add_column("freed after", justify="right", no_wrap=True, spare=4)
    labelled = any(site.labels for site in sites[:number])
    intervals = Intervals(heap)
    table.add_column("site")
    if labelled:
        table.add_column("labels", spare=2)
    table.add_column("where")
    for site in sites[:number]:
        cells = []
        for value, half in zip_strict((site.flat_change(index), site.cum_change(index)),
                                      site.errors(intervals, index)):
            cells += [value_text(value, unit, heap.compared) + error_text(value, half, unit),
                      share_text(value, whole)]
        if counted is not None:
            cells.append(value_text(site.flat_change(counted), "count", heap.compared))
        if lives:
            cells.append(duration_text(lives[site.key].mean() if site.key in lives else None))
        table.add_row(*(Text(cell)
                        for cell in (*cells, site.name, *([labels_cell(site.labels, index)] if labelled else []),
                                     site.where(index))))
    print_first(table, title, number, len(sites))


def print_labels(heap: Heap, rows: dict[str, Row], key: str, index: int, number: int, whole: int) -> None:
    """Prints the values of a label with most, and the site that has most under each value."""
    name, unit = heap.types[index]
    found = ordered(rows, index)
    title = title_of(name) + (", change" if heap.compared else "")
    if not found:
        make_console().print(Text(f"{title}: none", style="bold"))
        return
    counted = heap.objects_of(index)
    table = Table()
    for head, spare in (("flat", 0), ("of base" if heap.compared else "share", 1),
                        *([("objects", 2)] if counted is not None else [])):
        table.add_column(head, justify="right", no_wrap=True, spare=spare)
    for head in (key, "most at"):
        table.add_column(head)
    for row in found[:number]:
        cells = [value_text(row.change(index), unit, heap.compared), share_text(row.change(index), whole)]
        if counted is not None:
            cells.append(value_text(row.change(counted), "count", heap.compared))
        table.add_row(*(Text(text) for text in (*cells, row.value, row.most(index))))
    print_first(table, f"{title} by {key}", number, len(found), "values")


def markdown_of(heap: Heap, index: int, files: Sequence[AnySource], base: AnySource | None, by: str, number: int,
                lines: bool, verdict: tuple[int, str] | None) -> list[str]:
    """Returns lines for a GitHub summary: the total, the verdict on its growth if there is one, the first sites."""
    from hakmem.heap.sites import order, sites_of
    from hakmem.markdown import cell, table

    name, unit = heap.types[index]
    head = f"### {title_of(name)}: `{cell(', '.join(map(str, files)))}`" + (f" against `{cell(base)}`" if base else "")
    lines_out = [head, "", f"- {value_text(heap.total(index), unit, heap.compared)} in all"]
    if verdict:
        lines_out.append(f"- {cell(verdict[1])}")
    sites = [site for site in order(sites_of(heap, lines), index, by, heap.compared)
             if site.flat_change(index) or site.cum_change(index)]
    rows = [(value_text(site.flat_change(index), unit,
                        heap.compared), share_text(site.flat_change(index), heap.measure(index)),
             value_text(site.cum_change(index), unit, heap.compared), site.name, site.place) for site in sites[:number]]
    if rows:
        share = "of base" if heap.compared else "share"
        lines_out += ["", *table(("flat", share, "cum", "site", "where"), rows, right=3)]
    return lines_out


def least_first(rows: Sequence[Sequence[int]], columns: int) -> list[int]:
    """Returns for each column the order in which a narrow terminal leaves it out (Table.add_column's `spare`): first
    the columns that hold least."""
    sums = [sum(row[place] for row in rows) for place in range(columns)]
    order = sorted(range(columns), key=lambda place: -sums[place])
    return [order.index(place) + 1 for place in range(columns)]


def print_lifetimes(sites: Sequence[Site], lives: dict[SiteKey | None, Lives], number: int) -> None:
    """Prints how long the freed objects of the first sites had lived: the share in each span."""
    freed = [site for site in sites if site.key in lives]
    spares = least_first([lives[site.key].spans for site in freed[:number]], len(SPANS))
    table = Table()
    for head, spare in (("freed", 0), ("mean", 0), *zip((name for name, _ in SPANS), spares)):
        table.add_column(head, justify="right", no_wrap=True, spare=spare)
    table.add_column("site")
    for site in freed[:number]:
        of_site = lives[site.key]
        table.add_row(*(Text(cell) for cell in (
            value_text(of_site.freed, "count"), duration_text(of_site.mean()),
            *(share_text(objects, of_site.freed) if objects else "" for objects in of_site.spans), site.name)))
    print_first(table, "Lifetimes of what was freed, each column from its head to the next", number, len(freed))


def print_temporary(sites: Sequence[Site], temporary: Mapping[SiteKey, Temporary], number: int) -> None:
    """Prints what part of each site's freed objects their thread freed before its next allocations, those with most
    such objects first."""
    found = ranked(sites, temporary)
    spares = least_first([row.counts() for _, row in found[:number]], len(HEADS))
    table = Table()
    for head, spare in (("freed", 0), *zip(HEADS, spares)):
        table.add_column(head, justify="right", no_wrap=True, spare=spare)
    table.add_column("site")
    for site, row in found[:number]:
        table.add_row(*(Text(cell) for cell in (
            value_text(row.freed, "count"), *(share_text(count, row.freed) for count in row.counts()), site.name)))
    print_first(table, "Of what was freed: by the allocating thread before its next N allocations, later, or elsewhere",
                number, len(found))


def print_sizes(heap: Heap, sites: Sequence[Site], sizes: Mapping[SiteKey, Mapping[int, Sequence[int]]], index: int,
                number: int, whole: int) -> None:
    """Prints how the figure of each of the first sites spreads over the sizes of its blocks. Shares in a site's own
    row are of the whole, those of its sizes of the site."""
    name, unit = heap.types[index]
    counted = heap.objects_of(index)
    table = Table()
    for head, spare in (("flat", 0), ("share", 1), *([("objects", 2)] if counted is not None else []), ("size", 0)):
        table.add_column(head, justify="right", no_wrap=True, spare=spare)
    table.add_column("spread", no_wrap=True)
    table.add_column("site")

    def row(values: Sequence[int], measure: int, size: str, bar: str, text: str, style: str = "") -> None:
        cells = [value_text(values[index], unit, heap.compared), share_text(values[index], measure)]
        if counted is not None:
            cells.append(value_text(values[counted], "count", heap.compared))
        table.add_row(*(Text(cell, style=style) for cell in (*cells, size, bar, text)))

    shown = [site for site in sites if site.flat_change(index)]
    for site in shown[:number]:
        found = spread(sizes.get(site.key, {}), index)
        total = sum(abs(values[index]) for _, values in found)
        row([site.flat_change(place) for place in range(len(heap.types))], whole, "", "", site.name, "bold")
        for size, values in found:
            row(values, total, size, "█" * max(1, round(BAR * abs(values[index]) / total)), "")
    print_first(table, f"{title_of(name)}{', change' if heap.compared else ''} by size of block", number, len(shown))


def print_tree(heap: Heap, root: Node, index: int, least: float, whole: int) -> None:
    """Prints the tree of calls that hold at least `least` percent. A callee that has all of its caller's figure stands
    at the caller's depth."""
    name, unit = heap.types[index]
    console = make_console()
    print_title(console, f"{title_of(name)}{', change' if heap.compared else ''}, from the outermost function in")
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
