"""Selects the tests: the cycle profile in builds that carry it, and in others that they say so."""

import os
import re
from pathlib import Path

CACHE = Path(os.environ.get("HAKMEM_BUILD_DIR", "build/cycles")) / "CMakeCache.txt"
CARRIED = bool(re.search(r"^HAKMEM_CYCLES:BOOL=(ON|1|TRUE|YES)$", CACHE.read_text(), re.M))

collect_ignore = ["test_not_carried.py"] if CARRIED else ["test_calls.py", "test_profile.py", "test_profile_threads.py"]
