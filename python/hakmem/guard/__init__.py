"""Reads and symbolizes the reports of sampled guards in HAKMEM_GUARD_FILE."""
