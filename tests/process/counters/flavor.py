"""Tells whether the build under test carries the debug counters."""

import os
import re
from pathlib import Path

CACHE = (Path(os.environ.get("HAKMEM_BUILD_DIR", "build/debug")) / "CMakeCache.txt").read_text()
ASKED_FOR = re.search(r"^HAKMEM_EXTRA_CFLAGS:\w+=.*-DHAKMEM_DEBUG_COUNTERS=([01])", CACHE, re.M)
CARRIED = ASKED_FOR[1] == "1" if ASKED_FOR else bool(re.search(r"^CMAKE_BUILD_TYPE:\w+=Debug$", CACHE, re.M))
