"""Bytes in the unit that people read them in. Each kind of output has its own number of digits."""

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
