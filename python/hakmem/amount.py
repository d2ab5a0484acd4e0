"""Numbers and amounts of bytes as people write them on a command line."""

from __future__ import annotations

import re

import click

from hakmem.parameters import Parameter

# The greatest mean distance, in bytes, between samples or guarded blocks that the tools ask for.
MEAN_MOST = 1 << 40

# A number may have a fraction or an exponent, and one of these units behind it.
FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*(?:([kmgt])i?b?|b)?", re.IGNORECASE)
NUMBER_MOST = 1 << 60


def number_of(text: str) -> int | None:
    """Returns the number in a text such as 200M or 1e6; None if the text is no number."""
    found = NUMBER.fullmatch(text.strip())
    if not found:
        return None
    value = float(found[1]) * FACTORS[(found[2] or "").lower()]
    return int(value) if value <= NUMBER_MOST else None


class Amount(Parameter[int]):
    """A number of bytes. K, M, G or T after it each mean 1024 of the unit before, as in HAKMEM_* variables."""

    name = "bytes"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses the option."""
        if isinstance(value, int):
            return value
        amount = number_of(value)
        if amount is None:
            self.fail(f"{value!r} is no number of bytes, such as 4096, 64K or 1M", param, ctx)
        if not self.least <= amount <= self.most:
            self.fail(f"{value!r} is not from {self.least:,} to {self.most:,} bytes", param, ctx)
        return amount
