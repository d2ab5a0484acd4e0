"""Reads from /proc and /sys what the kernel tells about the machine and a process. Tests pass another `root`."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

from hakmem.clean import clean, clean_bytes
from hakmem.doctor import DoctorError
from hakmem.foreign import TooLarge, read_proc
from hakmem.live.memory import parse_mappings

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
    status: dict
    mappings: list | None
    environment: dict | None
    auxiliary: dict | None
    limits: dict
    executable: str | None
    denied: list = field(default_factory=list)  # files that there was no permission to read

    @property
    def folder(self):
        """The process's folder in /proc."""
        return self.root / "proc" / str(self.pid)

    def status_bytes(self, name):
        """Returns a size of the status file in bytes; None if the kernel does not tell it."""
        match = re.fullmatch(r"(\d+) kB", self.status.get(name, ""))
        return int(match[1]) * 1024 if match else None


def read_text(path):
    """Returns a file's text without its last line ends; None if it cannot be read."""
    try:
        return read_proc(path, TEXT_MOST).decode(errors="replace").rstrip("\n")
    except (OSError, TooLarge):
        return None


def read_number(path):
    """Returns the number in a file; None if there is none."""
    text = read_text(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def parse_maps(data):
    """Returns the mappings of /proc/PID/maps."""
    return parse_mappings(data.decode(errors="replace"))


def parse_environment(data):
    """Returns {name: value}. The first of equal names counts, as for getenv."""
    found = {}
    for entry in data.split(b"\0"):
        name, equals, value = clean_bytes(entry).partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def parse_limits(text):
    """Returns {short name: soft limit in bytes, None for unlimited}."""
    found = {}
    for line in text.splitlines():
        for name, short in LIMITS.items():
            if line.startswith(name):
                soft = line[len(name):].split()[0]
                found[short] = None if soft == "unlimited" else int(soft)
    return found


def read_process(pid, root=Path("/")):
    """Returns what /proc tells about the process; raises DoctorError if there is no such process."""
    folder = root / "proc" / str(pid)
    status = read_text(folder / "status")
    if status is None:
        raise DoctorError(f"no process {pid}")
    status = {
        clean(name): clean(value.strip().replace("\t", " "))
        for name, _, value in (line.partition(":") for line in status.split("\n"))
    }
    if status.get("State", "").startswith(("Z", "X")):
        raise DoctorError(f"process {pid} has ended; its parent has not taken notice yet")
    if int(status.get("Tgid", pid)) != pid:
        raise DoctorError(f"{pid} is a thread of process {status['Tgid']}; ask for that")
    denied = []

    def read(name, parse):
        try:
            return parse(read_proc(folder / name))
        except PermissionError:
            denied.append(name)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise DoctorError(f"process {pid} ended meanwhile") from error
        except TooLarge as error:
            raise DoctorError(f"process {pid}: {error}") from error
        return None

    def read_words(data):
        words = struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])
        return dict(zip(words[::2], words[1::2]))

    mappings = read("maps", parse_maps)
    if mappings == [] and not status.get("VmSize"):
        raise DoctorError(f"{pid} is a thread of the kernel, without memory of its own")
    try:
        executable = clean(os.readlink(folder / "exe"))
    except OSError:
        executable = None
    return Process(pid, root, status, mappings, read("environ", parse_environment), read("auxv", read_words),
                   parse_limits(read_text(folder / "limits") or ""), executable, denied)


# ---- The machine ----


def kernel_version(root):
    """Returns ((major, minor) or None, the whole text)."""
    text = read_text(root / "proc/sys/kernel/osrelease") or ""
    match = re.match(r"(\d+)\.(\d+)", text)
    return ((int(match[1]), int(match[2])) if match else None), text


def chosen(text):
    """Returns the word in brackets, as in `always [madvise] never`."""
    match = re.search(r"\[(\S+)\]", text or "")
    return match[1] if match else None


def meminfo(root):
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


def limit_of(path):
    """Returns the limit in a file; None for no limit."""
    value = read_number(path)
    return value if value is not None and value < UNLIMITED_V1 else None


def cgroup_memory(root, pid):
    """Returns the memory limits of the process's cgroup and those above it: of version 1 if that has the memory
    controller, else of version 2."""
    membership = read_text(root / "proc" / str(pid) / "cgroup") or ""
    mount = root / "sys/fs/cgroup"
    v1 = re.search(r"^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$", membership, re.MULTILINE)
    v2 = re.search(r"^0::(.*)$", membership, re.MULTILINE)
    if v1:
        group, base, files = v1[1], mount / "memory", ("memory.limit_in_bytes", None, "memory.usage_in_bytes")
    elif v2:
        group, base, files = v2[1], mount, ("memory.max", "memory.high", "memory.current")
    else:
        return CgroupMemory()
    parts = Path(group.strip("/")).parts
    folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    best = (None, None)
    high = None
    for folder in folders:
        value = limit_of(folder / files[0])
        if value is not None and (best[0] is None or value < best[0]):
            best = (value, folder)
        if files[1]:
            high = min((each for each in (high, limit_of(folder / files[1])) if each is not None), default=None)
    own = folders[0]
    folder = best[1] or own
    events = read_text(own / "memory.events") or read_text(own / "memory.oom_control") or ""
    kills = re.search(r"^oom_kill (\d+)$", events, re.MULTILINE)
    shown = "/" + str(folder.relative_to(root)) if best[1] else None
    return CgroupMemory(shown, best[0], high, read_number(folder / files[2]),
                        limit_of(own / "memory.swap.max") if v2 else None, int(kills[1]) if kills else None)
