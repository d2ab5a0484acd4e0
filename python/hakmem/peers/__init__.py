"""The other allocators: `hakmem peers`."""
