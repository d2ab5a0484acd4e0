"""The tools of the HAKMEM memory allocator."""
