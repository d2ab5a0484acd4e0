"""Small changes to words of messages."""

from __future__ import annotations

import signal


def capital(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def signal_name(number: int) -> str:
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def plural(count: int, word: str) -> str:
    """Returns a count with its word, which gets an s for all counts but 1."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
