"""Adds stacks up: by site, flat and cumulative, and as a tree that begins at the outermost function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, Union

from hakmem.compat import zip_strict
from hakmem.heap.interval import Intervals, Variances, added
from hakmem.heap.labels import LabelSums
from hakmem.heap.stacks import PYTHON, Frame, Heap, Stack

NOWHERE = "(no stack)"
LINES_SHOWN = 3
K = TypeVar("K")
# A function's name, with its place or file if the name alone does not tell it.
SiteKey = Union[str, tuple[str, str]]


@dataclass
class Site:
    """A function, or one line of it. flat: what it allocated itself. cum: the same with its callees. Both have a
    figure for each sample type."""

    key: SiteKey
    name: str
    place: str
    flat: list[int]
    flat_base: list[int]
    cum: list[int]
    cum_base: list[int]
    # Of flat and cum, with their bases (interval.py).
    flat_variances: Variances = ()
    cum_variances: Variances = ()
    # {(line, whether it is the innermost function): values}
    lines: dict[tuple[int, bool], list[int]] = field(default_factory=dict)
    labels: LabelSums = field(default_factory=dict)

    def where(self, index: int) -> str:
        """Returns the site's place, with the lines that hold most of its flat figure, most first; if it has none, of
        its cumulative figure."""
        for innermost in (True, False):
            found = sorted((-abs(values[index]), line) for (line, own), values in self.lines.items()
                           if own == innermost and values[index])
            if found:
                more = ",..." if len(found) > LINES_SHOWN else ""
                return f"{self.place}:{','.join(str(line) for _, line in found[:LINES_SHOWN])}{more}"
        return self.place

    def flat_change(self, index: int) -> int:
        """Returns how much a flat figure changed against the base."""
        return self.flat[index] - self.flat_base[index]

    def cum_change(self, index: int) -> int:
        """Returns how much a cumulative figure changed against the base."""
        return self.cum[index] - self.cum_base[index]

    def errors(self, intervals: Intervals, index: int) -> tuple[float, float]:
        """Returns the halves of the intervals of the flat and the cumulative figure."""
        return (intervals.half(index, both(self.flat, self.flat_base), self.flat_variances),
                intervals.half(index, both(self.cum, self.cum_base), self.cum_variances))


@dataclass
class Node:
    """A function in the tree, with the figures of all stacks through it."""

    name: str
    place: str
    values: list[int]
    base: list[int]
    children: dict[SiteKey, Node] = field(default_factory=dict)

    def change(self, index: int) -> int:
        """Returns how much a figure changed against the base."""
        return self.values[index] - self.base[index]


def label(frame: Frame, lines: bool) -> SiteKey:
    """Returns the key of a frame's site. Python's functions need the file, because many files have a <module>."""
    if lines:
        return (frame.name, frame.place())
    return (frame.name, frame.file) if frame.module == PYTHON else frame.name


def leaf_of(stack: Stack, lines: bool) -> SiteKey:
    """Returns the key of the site that allocated what a stack counts."""
    return label(stack.frames[0], lines) if stack.frames else NOWHERE


def place_of(frame: Frame, lines: bool) -> str:
    """Returns where a site's code is."""
    return frame.place() if lines else frame.file or frame.module


def sites_of(heap: Heap, lines: bool) -> list[Site]:
    """Returns every site of the heap. A function counts once in its cumulative figures for each stack."""
    width = len(heap.types)
    found: dict[SiteKey, Site] = {}

    def site(frame: Frame | None) -> Site:
        key = label(frame, lines) if frame else NOWHERE
        if key not in found:
            name, place = (frame.name, place_of(frame, lines)) if frame else (NOWHERE, "")
            found[key] = Site(key, name, place, [0] * width, [0] * width, [0] * width, [0] * width)
        return found[key]

    for stack in heap.stacks:
        frames: tuple[Frame | None, ...] = stack.frames or (None,)
        leaf = site(frames[0])
        add(leaf.flat, stack.values)
        leaf.flat_variances = added(leaf.flat_variances, stack.variances)
        based = any(stack.base)
        if based:
            add(leaf.flat_base, stack.base)
        for depth, frame in enumerate(stack.frames if not lines else ()):
            note_line(site(frame), frame, depth == 0, stack)
        for each in {id(one): one for one in map(site, frames)}.values():
            for one in stack.labels:
                note_change(each.labels, (one, each is leaf), stack)
            add(each.cum, stack.values)
            each.cum_variances = added(each.cum_variances, stack.variances)
            if based:
                add(each.cum_base, stack.base)
    return list(found.values())


def note_line(site: Site, frame: Frame, innermost: bool, stack: Stack) -> None:
    """Adds the stack's figures to a line of the site, if the line is in the site's file."""
    if frame.line and frame.file == site.place:
        note_change(site.lines, (frame.line, innermost), stack)


def note_change(sums: dict[K, list[int]], key: K, stack: Stack) -> None:
    """Adds the stack's change to the sums of a key."""
    add(sums.setdefault(key, [0] * len(stack.values)), stack.changes)


def both(values: Sequence[int], base: Sequence[int]) -> list[int]:
    """Returns the sums of values and base."""
    return [one + other for one, other in zip_strict(values, base)]


def add(totals: list[int], values: Iterable[int]) -> None:
    """Adds values to totals."""
    for place, value in enumerate(values):
        totals[place] += value


def order(sites: Iterable[Site], index: int, by: str, compared: bool) -> list[Site]:
    """Returns the sites sorted by a figure, most first. In a comparison, the size of the change counts."""
    def figure(site: Site) -> tuple[int, int, str, str]:
        value = site.flat_change(index) if by == "flat" else site.cum_change(index)
        other = site.cum_change(index) if by == "flat" else site.flat_change(index)
        if compared:
            value, other = abs(value), abs(other)
        return (-value, -other, site.name, site.place)
    return sorted(sites, key=figure)


def tree_of(heap: Heap, lines: bool) -> Node:
    """Returns the root of the tree of all stacks."""
    width = len(heap.types)
    root = Node("all", "", [0] * width, [0] * width)
    for stack in heap.stacks:
        node = root
        based = any(stack.base)
        add(node.values, stack.values)
        add(node.base, stack.base)
        for frame in reversed(stack.frames):
            key = label(frame, lines)
            if key not in node.children:
                node.children[key] = Node(frame.name, place_of(frame, lines), [0] * width, [0] * width)
            node = node.children[key]
            add(node.values, stack.values)
            if based:
                add(node.base, stack.base)
    return root
