"""What the mappings of a process are for, apart from HAKMEM's."""

import os
from pathlib import Path

KINDS = {
    "program": "the program's file and its variables",
    "libraries": "shared libraries and their variables",
    "stacks": "threads' stacks",
    "files": "other files mapped",
    "shared memory": "memory shared with others: shm, memfd, System V",
    "brk heap": "the program break's memory: not HAKMEM's",
    "other anonymous memory": "mapped by the program or a library for itself",
    "kernel": "vdso and its kin",
}
SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")
# A stack's guard is no longer than this.
GUARD_MOST = 1 << 20


def kind_of_areas(memory, areas):
    """The kind of each of the Areas, in their order."""
    program = read_link(f"/proc/{memory.pid}/exe")
    code = {area.mapping.path for area in areas if "x" in area.mapping.flags}
    pointers = stack_pointers(memory.pid)
    kinds, before = [], None
    for area in areas:
        kind = kind_of(area.mapping, before[0].mapping if before else None, before[1] if before else "", program, code,
                       pointers)
        kinds.append(kind)
        before = (area, kind)
    return kinds


def kind_of(mapping, before, kind_before, program, code, pointers):
    """The kind of a mapping that follows `before`, which is of kind_before."""
    path = mapping.path
    if path.startswith("[stack"):
        return "stacks"
    if path == "[heap]":
        return "brk heap"
    if path.startswith("[v"):
        return "kernel"
    if path.startswith(SHARED):
        return "shared memory"
    if mapping.inode:
        if path == program:
            return "program"
        return "libraries" if path in code else "files"
    if any(mapping.start <= pointer < mapping.end for pointer in pointers) or "pthread stack" in path:
        return "stacks"
    touching = before is not None and before.end == mapping.start
    if touching and not path and kind_before in ("program", "libraries") and before.inode:
        return kind_before  # its variables that begin as zeros
    if touching and is_guard(before) and not path and mapping.flags.startswith("rw"):
        return "stacks"
    return "other anonymous memory"


def is_guard(mapping):
    return mapping.flags.startswith("---") and not mapping.inode and not mapping.path and mapping.size <= GUARD_MOST


def stack_pointers(pid):
    """The stack pointers of the threads that sleep in the kernel; of those that run none is told."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/syscall"):
        try:
            words = task.read_text().split()
        except OSError:
            continue  # a thread that is gone, or a kernel that does not tell: the guard tells then
        if len(words) > 2:
            found.append(int(words[-2], 16))
    return found


def read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
