"""Bytes in the unit in which people read them: in a sentence, in a column, and exactly."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def scaled(count: float, limit: int = 1024) -> tuple[float, str]:
    """Returns bytes in the first unit in which they are fewer than `limit`, or else in the last one, and that unit.
    Fewer than 1024 bytes stay bytes."""
    value = float(count)
    for unit in UNITS:
        if unit == UNITS[-1] or abs(value) < (1024 if unit == "B" else limit):
            break
        value /= 1024
    return value, unit


def bytes_text(count: float) -> str:
    """Returns bytes with at most four digits, for sentences and for sizes that are round numbers: 512 B, 4 KiB,
    17.32 MiB."""
    value, unit = scaled(count)
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 9999.5 else f"{value:.4g} {unit}"


def bytes_column(count: float) -> str:
    """Returns bytes with three digits, zeros included, for columns and for figures that change while one looks: 512 B,
    4.00 KiB, 17.3 MiB, 0.98 GiB."""
    value, unit = scaled(count, 1000)
    size = abs(value)
    digits = 0 if unit == "B" or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{digits}f} {unit}"


def bytes_exact(count: int) -> str:
    """Returns bytes in the largest unit that divides them, for names: 64 B, 4 KiB, 1025 B."""
    place = 0
    while count and count % 1024 == 0 and place < len(UNITS) - 1:
        count //= 1024
        place += 1
    return f"{count} {UNITS[place]}"
