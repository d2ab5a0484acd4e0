"""The counters themselves are tested in builds that carry them; the switches in all."""

from flavor import CARRIED

collect_ignore = [] if CARRIED else ["test_counters.py"]
