"""What the values of a label hold: sums of a heap's stacks by the labels of their samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hakmem.clean import clean
from hakmem.heap.file import ProfileError
from hakmem.heap.labels import LabelSums, Wanted
from hakmem.heap.sites import NOWHERE, add
from hakmem.heap.stacks import Frame, Heap, Stack

# Marks a sample whose labels did not fit (src/profile/labels.h).
LOST = ("hakmem.labels", "lost")
# The module of a frame that a label makes (rooted).
MODULE = "[label]"
NONE = "(none)"
# Values of a label in a site's cell.
VALUES_SHOWN = 3


def keys_of(heap: Heap) -> dict[str, set[str]]:
    """Returns {key: its values} over all stacks."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for stack in heap.stacks:
        for key, value in stack.labels:
            found[key].add(value)
    return dict(sorted(found.items()))


def check(heap: Heap, by: str | None, wanted: Sequence[Wanted]) -> None:
    """Raises ProfileError for a key that no sample has."""
    keys = keys_of(heap)
    for key in dict.fromkeys(([by] if by else []) + [one.key for one in wanted]):
        if key not in keys:
            raise ProfileError(f"no sample has the label {clean(key, 100)}; " +
                               (f"there are: {', '.join(keys)}"
                                if keys else "none has any: the program puts labels in force by hak_profile_label() of "
                                "hakmem/profile.h"))


def notes_of(heap: Heap) -> list[str]:
    """Returns a note if samples have lost their labels."""
    if not any(LOST in stack.labels for stack in heap.stacks):
        return []
    return [f"some samples have lost their labels ({'='.join(LOST)}): the profile keeps 4,096 combinations and 16,384 "
            "sites with labels, and a "
            "thread 24 labels and scopes; label what has few values"]


def rooted(heap: Heap, key: str) -> Heap:
    """Returns the heap with an outermost frame added to each stack: the value of the key."""
    def frame(stack: Stack) -> Frame:
        return Frame(f"{key}={value_of(stack, key)}", "", 0, MODULE)
    return replace(heap, stacks=[replace(stack, frames=(*stack.frames, frame(stack))) for stack in heap.stacks])


def value_of(stack: Stack, key: str) -> str:
    """Returns the stack's value of the key; several values joined."""
    return ", ".join(value for label, value in stack.labels if label == key) or NONE


@dataclass
class Row:
    """A value of a key: the sums over all stacks that have it, and sites: {name of a site: its figures}."""

    value: str
    values: list[int]
    base: list[int]
    sites: dict[str, list[int]]

    def change(self, index: int) -> int:
        """Returns how much a figure changed against the base."""
        return self.values[index] - self.base[index]

    def most(self, index: int) -> str:
        """Returns the name of the site with the most of a figure."""
        name, values = max(self.sites.items(), key=lambda item: (abs(item[1][index]), item[0]), default=("", []))
        return name if values and values[index] else ""


def rows_of(heap: Heap, key: str) -> dict[str, Row]:
    """Returns {value: Row}. Stacks without the key are in the row NONE."""
    width = len(heap.types)
    found: dict[str, Row] = {}
    for stack in heap.stacks:
        value = value_of(stack, key)
        row = found.setdefault(value, Row(value, [0] * width, [0] * width, {}))
        own = row.sites.setdefault(stack.frames[0].name if stack.frames else NOWHERE, [0] * width)
        for sums, figures in ((row.values, stack.values), (row.base, stack.base), (own, stack.changes)):
            add(sums, figures)
    return found


def ordered(rows: dict[str, Row], index: int) -> list[Row]:
    """Returns the rows in which the figure is not 0, most first."""
    return sorted((row for row in rows.values() if row.change(index)), key=lambda row:
                  (-abs(row.change(index)), row.value))


def cell(sums: LabelSums, index: int) -> str:
    """Returns the labels of a site with the most of a figure, most first, as tenant=a,b route=/x. sums: {((key,
    value), whether the site itself allocated): values}."""
    for own in (True, False):
        found = sorted((-abs(values[index]), key, value) for ((key, value), innermost), values in sums.items()
                       if innermost == own and values[index])
        if found:
            by_key: dict[str, list[str]] = {}
            for _, key, value in found:
                by_key.setdefault(key, []).append(value)
            return " ".join(f"{key}={','.join(values[:VALUES_SHOWN])}{',...' if len(values) > VALUES_SHOWN else ''}"
                            for key, values in by_key.items())
    return ""
