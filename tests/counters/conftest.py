"""The debug counters are for builds that carry them; of others is tested that they say so."""

import os
import re
from pathlib import Path

CACHE = Path(os.environ.get("HAKMEM_BUILD_DIR", "build/debug")) / "CMakeCache.txt"
CARRIED = bool(re.search(r"^CMAKE_BUILD_TYPE:\w+=Debug$", CACHE.read_text(), re.M))

collect_ignore = ["test_not_carried.py"] if CARRIED else ["test_counters.py"]
