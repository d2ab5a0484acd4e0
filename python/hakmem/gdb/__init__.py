"""HAKMEM's heap in gdb, of a stopped program or a core dump. `source hakmem-gdb.py` in gdb makes the commands."""
