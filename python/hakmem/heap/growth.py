"""`hakmem heap --diff BASE --fail-above MOST`: checks whether a figure has grown too much over the base."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hakmem.amount import number_of
from hakmem.parameters import Parameter

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap

PERCENT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*%")


@dataclass(frozen=True)
class Most:
    """The most that a figure may grow: a percentage of the base, or a number."""

    percent: float | None
    number: int
    text: str

    def judge(self, heap: Heap, index: int) -> tuple[int, str]:
        """Returns (exit status, one line) for a comparison."""
        from hakmem.heap.show import title_of, value_text

        name, unit = heap.types[index]
        grown, base = heap.total(index), heap.measure(index)
        most = base * self.percent / 100 if self.percent is not None else self.number
        part = f" ({100 * grown / base:+.1f} %)" if base else ""
        words = f"{title_of(name).lower()}: {value_text(grown, unit, signed=True)}{part}"
        return int(grown > most
                   ), f"{words} is {'above' if grown > most else 'within'} the growth of {self.text} that is allowed"


class Growth(Parameter[Most]):
    """A percentage such as 5%, or a number such as 10M."""

    name = "growth"

    def convert(self, value: str | Most, param: click.Parameter | None, ctx: click.Context | None) -> Most:
        """Parses the option."""
        if not isinstance(value, str):
            return value
        found = PERCENT.fullmatch(value.strip())
        number = None if found else number_of(value)
        if not found and number is None:
            self.fail(f"{value!r} is neither a part of the base, such as 5%, nor a number, such as 10M", param, ctx)
        return Most(float(found[1]) if found else None, number or 0, value.strip())
