"""Tells from a program's file whether a library can be preloaded into the program. Runs nothing."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

from hakmem.foreign import open_regular

ELF = b"\x7fELF"
INTERPRETER = 3  # PT_INTERP
GO_MARK = b"\xff Go buildinf:"
# A script's interpreter may itself be a script. Linux follows so many.
SCRIPTS_MOST = 5
MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "aarch64", 243: "RISC-V"}


def read_head(path: str | Path) -> bytes:
    """Returns the first bytes of a file."""
    with open(path, "rb") as file:
        return file.read(256)


def kind(head: bytes) -> tuple[int, int, int]:
    """Returns (bits, byte order, machine) of an ELF header, which a program and its libraries must share."""
    return 64 if head[4] == 2 else 32, head[5], struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)[0]


def kind_text(bits: int, machine: int) -> str:
    """Returns bits and machine as a text."""
    name = MACHINES.get(machine, f"machine {machine}")
    return name if name in ("x86-64", "aarch64") and bits == 64 else f"{bits}-bit {name}"


def is_loader(path: str) -> bool:
    """Returns whether a file is a dynamic linker: it has no interpreter, and preloads into its program."""
    return os.path.basename(path).startswith(("ld-", "ld.so"))


def has_interpreter(path: str, head: bytes) -> bool:
    """Returns whether a 64-bit ELF file names a dynamic linker."""
    at, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    with open(path, "rb") as file:
        file.seek(at)
        table = file.read(size * count)
    return any(
        struct.unpack_from("<I", table, start)[0] == INTERPRETER for start in range(0,
                                                                                    len(table) - 3, size or 1))


def is_go(path: str) -> bool:
    """Returns whether a file is a Go program."""
    file = open_regular(path)
    if file is None:
        return False
    with file:
        return file.find(GO_MARK, file.size) >= 0


def is_go_program(word: str) -> bool:
    """Returns whether the program that a word names is a Go program."""
    path = shutil.which(word)
    try:
        return path is not None and is_go(program_file(path))
    except (OSError, TypeError, ValueError):
        return False


def static_obstacle(path: str) -> str | None:
    """Returns why a 64-bit ELF program loads no library; None if it does."""
    if has_interpreter(path, read_head(path)) or is_loader(path):
        return None
    if is_go(path):
        return f"{path} is a Go program that is linked statically, as Go does without cgo: it keeps Go's allocator"
    return f"{path} is linked statically and loads no library: it keeps its own malloc"


def gains_nothing(path: str) -> bool:
    """Returns whether a program gets no rights from its file, because the process or the file system forbids it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        if "NoNewPrivs:\t1" in file.read():
            return True
    return bool(os.statvfs(path).f_flag & os.ST_NOSUID)


def privilege_obstacle(path: str) -> str | None:
    """Returns why the program gets more rights, so that LD_PRELOAD is dropped; None if it does not."""
    status, uid = os.stat(path), os.getuid()
    gained = None
    if status.st_mode & 0o4000 and status.st_uid != uid:
        gained = "is set-user-id"
    elif status.st_mode & 0o2010 == 0o2010 and status.st_gid != os.getgid():
        gained = "is set-group-id"
    elif uid != 0:
        try:
            os.getxattr(path, "security.capability")
            gained = "has file capabilities"
        except OSError:
            pass
    if gained is None or gains_nothing(path):
        return None
    return f"{path} {gained}, so the dynamic linker ignores LD_PRELOAD: it keeps the system's malloc"


def program_file(path: str) -> str:
    """Returns the file that the kernel loads; for a script, its interpreter."""
    for _ in range(SCRIPTS_MOST):
        head = read_head(path)
        if not head.startswith(b"#!"):
            break
        words = head[2:].partition(b"\n")[0].split()
        if not words:
            break
        path = os.fsdecode(words[0])
    return path


def obstacle(word: str, library: str | Path) -> str | None:
    """Returns a sentence on why the library cannot take effect in the program that a word names; None if it can, or
    if the file cannot be read."""
    path = shutil.which(word)
    if path is None:
        return None
    try:
        path = program_file(path)
        head, own = read_head(path), read_head(library)
        if not head.startswith(ELF) or len(head) < 64:
            return None
        (bits, order, machine), (own_bits, own_order, own_machine) = kind(head), kind(own)
        if (bits, order, machine) != (own_bits, own_order, own_machine):
            return (f"{path} is a program for {kind_text(bits, machine)}, and the library is for "
                    f"{kind_text(own_bits, own_machine)}: it keeps its own malloc")
        return static_obstacle(path) or privilege_obstacle(path)
    except (OSError, TypeError, ValueError, struct.error):
        return None
