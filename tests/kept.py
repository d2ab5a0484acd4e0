"""Where tests keep what is dear to make, for the next run and for other checkouts."""

import os
from pathlib import Path

import blackbox


def folder(name: str) -> Path:
    """~/.cache/hakmem/NAME, with HAKMEM_CACHE_DIR in place of ~/.cache/hakmem; a folder of the build where that cannot
    be written. What is kept there has a digest of all that it was made of as its name."""
    build = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release"))
    home = Path(os.environ.get("HAKMEM_CACHE_DIR") or Path(os.path.expanduser("~"), ".cache/hakmem"))
    for place in home / name, build / "kept" / name:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            break
    return place.resolve()
