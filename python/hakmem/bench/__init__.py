"""Measuring allocators side by side: `hakmem bench` and `hakmem compare`."""
