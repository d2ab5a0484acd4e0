"""Cleans texts that others chose: names of processes, threads, files and functions, and texts in their memory.

A terminal obeys control characters, a text that looks like one of our lines deceives the reader, and bidirectional
controls show a name in a wrong order. So each such text passes clean() on its way in, and each message of a command
passes clean_lines() on its way out. Text for a page is cleaned too; templates and JSON escape it for HTML.
"""

from __future__ import annotations

REPLACED = "\N{REPLACEMENT CHARACTER}"
# The most characters of a text that are kept: a symbol of a C++ template can have thousands.
MOST = 1 << 16


def clean(text: str, most: int = MOST) -> str:
    """Returns one line without control characters, bidirectional controls, lone surrogates, line separators."""
    text = text[:most]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else REPLACED for one in text)


def clean_bytes(data: bytes, most: int = MOST) -> str:
    """Returns bytes that should be UTF-8 as a clean text."""
    return clean(data[:4 * most].decode("utf-8", "replace"), most)


def clean_lines(text: str) -> str:
    """Returns several lines, each clean. For texts whose line ends are our own."""
    return text if text.isascii() and text.isprintable() else "\n".join(
        clean(line, len(line)) for line in text.split("\n"))
