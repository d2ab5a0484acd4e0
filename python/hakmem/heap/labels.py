"""Labels of samples, such as tenant=a, set by hak_profile_label() or by another writer of pprof's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hakmem.clean import clean
from hakmem.parameters import Parameter

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile, Sample

# The label of lifetimes, which lifetimes.py shows.
LIVED_FROM = ("lifetime_from", "milliseconds")
# The label of sizes, which sizes.py shows; Go's profiles have it with this unit, other writers' without one.
SIZE = (("bytes", "bytes"), ("bytes", ""))
# The label of blocks that their own thread freed, which temporary.py shows.
CALLS_FROM = ("allocations_from", "count")


# (key, value) of each label.
Labels = tuple[tuple[str, str], ...]
# {(label, whether the site itself allocated): a figure for each sample type}.
LabelSums = dict[tuple[tuple[str, str], bool], list[int]]


@dataclass(frozen=True)
class Wanted:
    """A key and the value it must have; None for any value."""

    key: str
    value: str | None


class LabelParam(Parameter[Wanted]):
    """KEY=VALUE, or KEY alone."""

    name = "label"

    def convert(self, value: str | Wanted, param: click.Parameter | None, ctx: click.Context | None) -> Wanted:
        """Parses the option."""
        if not isinstance(value, str):
            return value
        key, equals, text = value.partition("=")
        if not key:
            self.fail(f"{value!r} is neither KEY=VALUE nor KEY", param, ctx)
        return Wanted(key, text if equals else None)


def labels_of(profile: Profile, sample: Sample) -> Labels:
    """Returns ((key, value), ...) of a sample, sorted. A number's value becomes text such as "7 bytes"."""
    if not sample.label:
        return ()
    texts, found, own = profile.string_table, [], place_of_size(profile, sample)
    for place, one in enumerate(sample.label):
        if one.str:
            found.append((clean(texts[one.key]), clean(texts[one.str])))
        elif place != own and (texts[one.key], texts[one.num_unit]) not in (LIVED_FROM, CALLS_FROM):
            unit = clean(texts[one.num_unit])
            found.append((clean(texts[one.key]), f"{one.num} {unit}" if unit else str(one.num)))
    return tuple(sorted(found))


def place_of_size(profile: Profile, sample: Sample) -> int | None:
    """Returns which label of a sample is the size of its blocks: the last such one, because a label of the program may
    look alike. None if there is none, as for a sample that counts freed blocks."""
    texts = profile.string_table
    kinds = [(texts[one.key], texts[one.num_unit]) if not one.str else None for one in sample.label]
    if LIVED_FROM in kinds or CALLS_FROM in kinds:
        return None
    return max((place for place, kind in enumerate(kinds) if kind in SIZE), default=None)


def matches(labels: Labels, wanted: Sequence[Wanted]) -> bool:
    """Returns whether the labels have one of the wanted values of each key. A number needs no unit."""
    for key in {one.key for one in wanted}:
        values = [one.value for one in wanted if one.key == key]
        if not any(label == key and (value is None or text == value or text.partition(" ")[0] == value)
                   for label, text in labels for value in values):
            return False
    return True
