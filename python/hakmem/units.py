"""Bytes in the unit that people read them in. Other modules choose their own number of digits by scaled()."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def scaled(count: float, last: str = "PiB", limit: float = 1024) -> tuple[float, str]:
    """Returns bytes in the first unit in which they are fewer than `limit`, or else in the last one, and that unit."""
    value = float(count)
    for unit in UNITS:
        if abs(value) < limit or unit == last:
            break
        value /= 1024
    return value, unit


def bytes_text(count: int) -> str:
    """Returns bytes with a unit and at most four digits, such as 17.32 MiB; below 1 KiB the whole number."""
    value, unit = scaled(count, "GiB")
    return f"{count:,} B" if unit == "B" else f"{value:,.4g} {unit}"
