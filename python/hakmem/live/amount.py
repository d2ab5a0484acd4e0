"""Numbers of bytes as people write them on a command line."""

from __future__ import annotations

import re

import click

from hakmem.parameters import Parameter

UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
AMOUNT = re.compile(r"(\d{1,13}(?:\.\d{1,6})?)\s*([KMG]?)(?:i?B)?", re.I)


class Amount(Parameter[int]):
    """A number of bytes. K, M or G after it each mean 1024 of the unit before, as in HAKMEM_* variables."""

    name = "bytes"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses the option."""
        if isinstance(value, int):
            return value
        found = AMOUNT.fullmatch(value.strip())
        if not found:
            self.fail(f"{value!r} is no number of bytes, as 4096, 64K or 1M", param, ctx)
        amount = int(float(found[1]) * (1 << UNITS[found[2].upper()]))
        if not self.least <= amount <= self.most:
            self.fail(f"{value!r} is not from {self.least:,} to {self.most:,} bytes", param, ctx)
        return amount
