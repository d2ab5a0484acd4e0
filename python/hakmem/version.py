"""The tools' name and version."""

from __future__ import annotations

import re

from hakmem import paths

# The command's name in usage lines, however it was started.
NAME = "hakmem"


def version() -> str:
    """Returns the version of these tools and their library: the header's in a checkout, else the wheel's."""
    header = paths.CHECKOUT / "include/hakmem/hakmem.h"
    if header.is_file():
        found = re.search(r'^#define HAK_VERSION_STRING "(.*)"$', header.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1]
    from importlib import metadata  # as slow as everything else that --version does
    return metadata.version("hakmem")
