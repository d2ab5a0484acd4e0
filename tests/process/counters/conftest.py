"""Selects the tests: counters in builds that carry them, switches in all builds."""

from flavor import CARRIED

collect_ignore = [] if CARRIED else ["test_counters.py"]
