"""HAKMEM's heap in gdb: of a program that is stopped, or of a core dump. `source hakmem-gdb.py` in gdb makes the
commands."""
