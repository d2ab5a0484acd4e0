"""Reads from a built library's bytes what it supports."""

from __future__ import annotations

import re

OPTION = re.compile(rb"HAKMEM_[A-Z0-9_]*[A-Z0-9](?=\0)")


def known_options(data: bytes) -> set[str]:
    """Returns the options that a build of the library knows. Their names stand in it as texts."""
    return {name.decode() for name in OPTION.findall(data)}
