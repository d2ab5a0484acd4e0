"""What a built library says of itself, read from its bytes."""

import re

OPTION = re.compile(rb"HAKMEM_[A-Z0-9_]*[A-Z0-9](?=\0)")


def known_options(data):
    """The options that a build of the library knows: their names stand in it."""
    return {name.decode() for name in OPTION.findall(data)}
