"""Stacks added up: by site, flat and cumulative, and as a tree from the outermost function in."""

from dataclasses import dataclass, field

NOWHERE = "(no stack)"


@dataclass
class Site:
    """A function, or a line of one: what it allocated itself (flat) and with what it called (cum), by sample type."""

    key: object
    name: str
    place: str
    flat: list
    flat_base: list
    cum: list
    cum_base: list

    def flat_change(self, index):
        return self.flat[index] - self.flat_base[index]

    def cum_change(self, index):
        return self.cum[index] - self.cum_base[index]


@dataclass
class Node:
    name: str
    place: str
    values: list
    base: list
    children: dict = field(default_factory=dict)

    def change(self, index):
        return self.values[index] - self.base[index]


def label(frame, lines):
    return (frame.name, frame.place()) if lines else frame.name


def place_of(frame, lines):
    return frame.place() if lines else frame.file or frame.module


def sites_of(heap, lines):
    """Every site of the heap; a function that is in a stack several times counts once in its cumulative figures."""
    width = len(heap.types)
    found = {}

    def site(frame):
        key = label(frame, lines) if frame else NOWHERE
        if key not in found:
            name, place = (frame.name, place_of(frame, lines)) if frame else (NOWHERE, "")
            found[key] = Site(key, name, place, [0] * width, [0] * width, [0] * width, [0] * width)
        return found[key]

    for stack in heap.stacks:
        frames = stack.frames or (None,)
        leaf = site(frames[0])
        add(leaf.flat, stack.values)
        based = any(stack.base)
        if based:
            add(leaf.flat_base, stack.base)
        for each in {id(one): one for one in map(site, frames)}.values():
            add(each.cum, stack.values)
            if based:
                add(each.cum_base, stack.base)
    return list(found.values())


def add(totals, values):
    for place, value in enumerate(values):
        totals[place] += value


def order(sites, index, by, compared):
    """The sites by a figure, most first; of a comparison by how much it changed."""
    def figure(site):
        value = site.flat_change(index) if by == "flat" else site.cum_change(index)
        other = site.cum_change(index) if by == "flat" else site.flat_change(index)
        if compared:
            value, other = abs(value), abs(other)
        return (-value, -other, site.name, site.place)
    return sorted(sites, key=figure)


def tree_of(heap, lines):
    """The root of all stacks."""
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
