"""Tells what each mapping of a process is for, apart from HAKMEM's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.foreign import TooLarge, read_proc

if TYPE_CHECKING:
    from hakmem.foreign import Mapping
    from hakmem.live.memory import ProcessMemory
    from hakmem.live.pages import Area

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
# The longest guard of a stack.
GUARD_MOST = 1 << 20
SYSCALL_MOST = 4096


def kind_of_areas(memory: ProcessMemory, areas: Iterable[Area]) -> list[str]:
    """Returns the kind of each of the Areas, in their order."""
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


def kind_of(mapping: Mapping, before: Mapping | None, kind_before: str, program: str, code: set[str],
            pointers: list[int]) -> str:
    """Returns the kind of a mapping that follows the mapping `before`, whose kind is kind_before."""
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
    if before is not None and before.end == mapping.start and not path:
        if kind_before in ("program", "libraries") and before.inode:
            return kind_before  # its zero-initialized variables
        if is_guard(before) and mapping.flags.startswith("rw"):
            return "stacks"
    return "other anonymous memory"


def is_guard(mapping: Mapping) -> bool:
    """Returns whether the mapping may be a stack's guard."""
    return mapping.flags.startswith("---") and not mapping.inode and not mapping.path and mapping.size <= GUARD_MOST


def stack_pointers(pid: int) -> list[int]:
    """Returns the stack pointers of threads that sleep in the kernel, which does not tell those of others."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/syscall"):
        try:
            words = read_proc(task, SYSCALL_MOST).split()
        except (OSError, TooLarge):
            continue  # the thread is gone or the kernel does not tell: a stack is then known by its guard
        if len(words) > 2:
            found.append(int(words[-2], 16))
    return found


def read_link(path: str) -> str:
    """Returns the target of a link, or ""."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
