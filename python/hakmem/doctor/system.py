"""Reads from /proc and /sys what the kernel tells about the machine and a process. Tests pass another `root`."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hakmem.clean import clean, clean_bytes
from hakmem.doctor import DoctorError
from hakmem.foreign import Mapping, TooLarge, read_proc
from hakmem.live.memory import living_thread, parse_mappings

T = TypeVar("T")

UNLIMITED_V1 = 1 << 62  # cgroup v1 has no word for "no limit", only a number of about 2^63
LIMITS = {"Max address space": "as", "Max data size": "data", "Max locked memory": "memlock"}
# A limit above every text of the kernel that is read here.
TEXT_MOST = 1 << 20
AT_PHDR, AT_PHNUM, AT_SECURE = 3, 5, 23


@dataclass
class Process:
    """What can be read of a process. None stands for what could not be read."""

    pid: int
    root: Path
    status: dict[str, str]
    mappings: list[Mapping] | None
    environment: dict[str, str] | None
    auxiliary: dict[int, int] | None
    limits: dict[str, int | None]
    executable: str | None
    denied: list[str] = field(default_factory=list)  # files that there was no permission to read

    @property
    def folder(self) -> Path:
        """The process's folder in /proc."""
        return self.root / "proc" / str(self.pid)

    def status_bytes(self, name: str) -> int | None:
        """Returns a size of the status file in bytes; None if the kernel does not tell it."""
        match = re.fullmatch(r"(\d+) kB", self.status.get(name, ""))
        return int(match[1]) * 1024 if match else None


def read_text(path: Path) -> str | None:
    """Returns a file's text without its last line ends; None if it cannot be read."""
    try:
        return read_proc(path, TEXT_MOST).decode(errors="replace").rstrip("\n")
    except (OSError, TooLarge):
        return None


def read_number(path: Path) -> int | None:
    """Returns the number in a file; None if there is none."""
    text = read_text(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def parse_maps(data: bytes) -> list[Mapping]:
    """Returns the mappings of /proc/PID/maps."""
    return parse_mappings(data.decode(errors="replace"))


def parse_environment(data: bytes) -> dict[str, str]:
    """Returns {name: value}. The first of equal names counts, as for getenv."""
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = clean_bytes(entry).partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def parse_limits(text: str) -> dict[str, int | None]:
    """Returns {short name: soft limit in bytes, None for unlimited}."""
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        for name, short in LIMITS.items():
            if line.startswith(name):
                soft = line[len(name):].split()[0]
                found[short] = None if soft == "unlimited" else int(soft)
    return found


def read_process(pid: int, root: Path = Path("/")) -> Process:
    """Returns what /proc tells about the process; raises DoctorError if there is no such process."""
    folder = root / "proc" / str(pid)
    text = read_text(folder / "status")
    if text is None:
        raise DoctorError(f"no process {pid}")
    status = {
        clean(name): clean(value.strip().replace("\t", " "))
        for name, _, value in (line.partition(":") for line in text.split("\n"))
    }
    if status.get("State", "").startswith(("Z", "X")):
        raise DoctorError(f"process {pid} has ended; its parent has not taken notice yet")
    process = int(status.get("Tgid", pid))
    if process != pid and living_thread(process) != pid:
        raise DoctorError(f"{pid} is a thread of process {status['Tgid']}; ask for that")
    denied: list[str] = []

    def read(name: str, parse: Callable[[bytes], T]) -> T | None:
        try:
            return parse(read_proc(folder / name))
        except PermissionError:
            denied.append(name)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise DoctorError(f"process {pid} ended meanwhile") from error
        except TooLarge as error:
            raise DoctorError(f"process {pid}: {error}") from error
        return None

    def read_words(data: bytes) -> dict[int, int]:
        words = struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])
        return dict(zip(words[::2], words[1::2]))

    mappings = read("maps", parse_maps)
    if mappings == [] and not status.get("VmSize"):
        raise DoctorError(f"{pid} is a thread of the kernel, without memory of its own")
    executable = None
    try:
        executable = clean(os.readlink(folder / "exe"))
    except OSError:
        pass  # it may not be read
    return Process(pid, root, status, mappings, read("environ", parse_environment), read("auxv", read_words),
                   parse_limits(read_text(folder / "limits") or ""), executable, denied)


# ---- The machine ----


def kernel_version(root: Path) -> tuple[tuple[int, int] | None, str]:
    """Returns ((major, minor) or None, the whole text)."""
    text = read_text(root / "proc/sys/kernel/osrelease") or ""
    match = re.match(r"(\d+)\.(\d+)", text)
    return ((int(match[1]), int(match[2])) if match else None), text


def chosen(text: str | None) -> str | None:
    """Returns the word in brackets, as in `always [madvise] never`."""
    match = re.search(r"\[(\S+)\]", text or "")
    return match[1] if match else None


def meminfo(root: Path) -> dict[str, int]:
    """Returns {name: bytes}."""
    text = read_text(root / "proc/meminfo") or ""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\S+):\s+(\d+) kB$", text, re.MULTILINE)}


@dataclass(frozen=True)
class CgroupMemory:
    """The effective limits, in bytes, of all groups between the process's and the root. None if there is no limit."""

    path: str | None = None  # the group that sets `hard`
    hard: int | None = None
    high: int | None = None
    used: int | None = None  # of the group at `path`
    swap: int | None = None  # most swap, in the process's own group
    kills: int | None = None


def limit_of(path: Path) -> int | None:
    """Returns the limit in a file; None for no limit."""
    value = read_number(path)
    return value if value is not None and value < UNLIMITED_V1 else None


def cgroup_memory(root: Path, pid: int | str) -> CgroupMemory:
    """Returns the memory limits of the process's cgroup and those above it: of version 1 if that has the memory
    controller, else of version 2."""
    membership = read_text(root / "proc" / str(pid) / "cgroup") or ""
    mount = root / "sys/fs/cgroup"
    v1 = re.search(r"^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$", membership, re.MULTILINE)
    v2 = re.search(r"^0::(.*)$", membership, re.MULTILINE)
    if v1:
        group, base, hard_file, high_file, used_file = (v1[1], mount / "memory", "memory.limit_in_bytes", "",
                                                        "memory.usage_in_bytes")
    elif v2:
        group, base, hard_file, high_file, used_file = (v2[1], mount, "memory.max", "memory.high", "memory.current")
    else:
        return CgroupMemory()
    parts = Path(group.strip("/")).parts
    folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    hard: int | None = None
    high: int | None = None
    hardest: Path | None = None  # the folder that sets `hard`
    for folder in folders:
        value = limit_of(folder / hard_file)
        if value is not None and (hard is None or value < hard):
            hard, hardest = value, folder
        if high_file:
            high = min((each for each in (high, limit_of(folder / high_file)) if each is not None), default=None)
    own = folders[0]
    folder = hardest or own
    events = read_text(own / "memory.events") or read_text(own / "memory.oom_control") or ""
    kills = re.search(r"^oom_kill (\d+)$", events, re.MULTILINE)
    shown = "/" + str(folder.relative_to(root)) if hardest else None
    return CgroupMemory(shown, hard, high, read_number(folder / used_file),
                        limit_of(own / "memory.swap.max") if v2 else None, int(kills[1]) if kills else None)
