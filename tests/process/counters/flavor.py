"""Tells whether the build under test carries the debug counters."""

import os
import re
from pathlib import Path

CACHE = Path(os.environ.get("HAKMEM_BUILD_DIR", "build/debug")) / "CMakeCache.txt"
CARRIED = bool(re.search(r"^CMAKE_BUILD_TYPE:\w+=Debug$", CACHE.read_text(), re.M))
