"""Names of code that was made at run time, from perf's map files and from jitdump files.

A perf map is /tmp/perf-PID.map, a text file with a start, a size (both hexadecimal) and a name on each line. Python
writes it with -X perf, Node with --perf-basic-prof, JVMs with -XX:+DumpPerfMapAtExit. A jitdump is binary. Its writer
maps a page of it, so its path stands among the mappings.

The owner of a process decides what these files hold, and everybody can write to /tmp. So a file is read only if it
is a regular file of a trusted user: the caller, or the owner of the process or of the profile. Only the names of the
addresses asked for are kept."""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.clean import clean, clean_bytes
from hakmem.foreign import Reader, open_regular

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile

# Limits: bytes of a map and of a dump; of a line and of a name; records of a dump.
MAP_MOST, DUMP_MOST = 256 << 20, 1 << 30
LINE_MOST, NAME_MOST = 1 << 16, 4096
RECORDS_MOST, LINES_MOST = 4_000_000, 1 << 20
PROCESS = re.compile(r"process ([1-9]\d{0,9})")
DUMP_NAME = re.compile(r"(?:.*/)?jit-\d+\.dump")
LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\n]{1,%d})" % LINE_MOST)
# V8 writes "name /folder/file.js:12:3", Python "py::name:/folder/file.py".
V8 = re.compile(r"(?:(?:Lazy)?Compile|Function|JS|Script|Eval|RegExp|Interpreted\w*|LazyCompile):?[~*^+]*(\S*) "
                r"(\S+?):(\d+)(?::\d+)?$")
PYTHON = re.compile(r"py::(.*):([^:]*)$")


@dataclass(frozen=True)
class Made:
    """A function that was made at run time."""

    name: str
    file: str = ""
    line: int = 0


def made_of(text: str) -> Made:
    """Returns the function that a name in a map describes."""
    if found := PYTHON.match(text):
        return Made(found[1], found[2])
    if found := V8.match(text):
        return Made(found[1] or "(anonymous)", found[2].removeprefix("file://"), min(int(found[3]), (1 << 31) - 1))
    return Made(text)


# ---- Files that are trusted ----


def open_owned(path: str, owners: Collection[int]) -> Reader | None:
    """Returns a Reader of a regular file that one of the owners has; None if there is none."""
    try:
        return open_regular(path, lambda status, _: status.st_uid in owners)
    except (OSError, ValueError):
        return None


def process_of(profile: Profile) -> int | None:
    """Returns the process number that a comment of the profile gives; None if there is none."""
    found = (PROCESS.fullmatch(profile.string_table[place]) for place in profile.comment)
    return next((int(match[1]) for match in found if match), None)


def seen_by(number: int, time_ns: int) -> tuple[tuple[str, ...], int | None, tuple[str, ...]]:
    """Returns (roots, owner, maps) of a process. roots: where its paths begin, as the process sees them and as we do.
    owner: its user, or None. maps: where its perf map may be.
    A process that started after the profile was taken is a different one: nothing of it is used."""
    try:
        process = Path(f"/proc/{number}")
        status = (process / "status").read_text("utf-8", "replace")
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        owner, inner = int(fields["Uid"][1]), int(fields.get("NSpid", [str(number)])[-1])
        if time_ns and started_ns(process) > time_ns:
            return (), None, ()
    except (OSError, KeyError, ValueError, IndexError):
        return ("",), None, (f"/tmp/perf-{number}.map",)
    root = f"/proc/{number}/root"
    return (root, ""), owner, (f"{root}/tmp/perf-{inner}.map", f"/tmp/perf-{number}.map")


def started_ns(process: Path) -> int:
    """Returns about when a process started, since 1970."""
    ticks = int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    boot = next(
        int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return int((boot + ticks / os.sysconf("SC_CLK_TCK")) * 1e9)


# ---- Looking names up ----


def made_names(profile: Profile, addresses: Iterable[int], owners: Iterable[int] = ()) -> dict[int, Made]:
    """Returns {address: Made} for the addresses that the process's map or dumps name."""
    wanted = sorted(set(addresses))
    if not wanted:
        return {}
    texts, found = profile.string_table, {}
    number = process_of(profile)
    roots, own, maps = seen_by(number, profile.time_nanos) if number else (("",), None, ())
    owners = {os.geteuid(), *owners, *(() if own is None else (own,))}
    dumps = [f"{root}{path}" for path in dict.fromkeys(texts[mapping.filename] for mapping in profile.mapping)
             if DUMP_NAME.fullmatch(path) for root in roots]
    for paths, read in ((maps, read_map), (dumps, read_dump)):
        for path in paths:
            file = open_owned(path, owners)
            if file is not None:
                with file:
                    found.update(read(file, wanted))
                break
    return found


def read_map(file: Reader, wanted: list[int]) -> dict[int, Made]:
    """Returns {address: Made} from a perf map. Of two lines for an address the later one counts: its code is newer."""
    found: dict[int, str] = {}
    rest, at, size = b"", 0, min(file.size, MAP_MOST)
    while at < size:
        data = file.pread(min(1 << 20, size - at), at)
        if not data:
            break
        at += len(data)
        lines = (rest + data).split(b"\n")
        rest = lines.pop()[-LINE_MOST:]
        for line in lines:
            note_line(line, wanted, found)
    note_line(rest, wanted, found)
    return {address: made_of(text) for address, text in found.items()}


def note_line(line: bytes, wanted: list[int], found: dict[int, str]) -> None:
    """Adds the wanted addresses that a line of a map covers to `found`."""
    match = LINE.fullmatch(line.rstrip(b"\r"))
    if match:
        start = int(match[1], 16)
        for address in within(wanted, start, int(match[2], 16)):
            found[address] = clean_bytes(match[3], NAME_MOST)


def within(wanted: list[int], start: int, size: int) -> list[int]:
    """Returns the wanted addresses in a range."""
    return wanted[bisect_left(wanted, start):bisect_left(wanted, start + size)]


# ---- jitdump ----

MAGIC = 0x4A695444
HEAD, RECORD = struct.Struct("<IIIIIIQQ"), struct.Struct("<IIQ")
LOAD, MOVE, DEBUG, CLOSE = range(4)
LOADED, MOVED, DEBUGGED, ENTRY = (struct.Struct("<IIQQQQ"), struct.Struct("<IIQQQQQ"), struct.Struct("<QQ"),
                                  struct.Struct("<QII"))
# Limits: bytes of a record, and functions that may be moved.
DETAIL_MOST, LOADED_MOST = 1 << 20, 1 << 20


def read_dump(file: Reader, wanted: list[int]) -> dict[int, Made]:
    """Returns {address: Made} from a jitdump. A function's lines come before the function itself."""
    head = file.pread(HEAD.size, 0)
    if len(head) < HEAD.size or HEAD.unpack(head)[0] != MAGIC:
        return {}
    found: dict[int, Made] = {}
    loaded: dict[int, str] = {}
    lines: dict[int, tuple[str, int]] = {}
    at, size = HEAD.unpack(head)[2], min(file.size, DUMP_MOST)
    for _ in range(RECORDS_MOST):
        record = file.pread(RECORD.size, at) if at < size else b""
        if len(record) < RECORD.size:
            break
        kind, length, _ = RECORD.unpack(record)
        if length < RECORD.size or kind == CLOSE:
            break
        data = file.pread(min(length - RECORD.size, DETAIL_MOST), at + RECORD.size)
        if kind == DEBUG:
            lines = {**(lines if len(lines) < LINES_MOST else {}), **lines_of(data, wanted)}
        elif kind == LOAD and len(data) >= LOADED.size:
            _, _, _, start, room, _ = LOADED.unpack_from(data)
            name = clean_bytes(data[LOADED.size:].partition(b"\0")[0][:NAME_MOST], NAME_MOST)
            if len(loaded) < LOADED_MOST:
                loaded[start] = name
            for address in within(wanted, start, room):
                made, (path, line) = made_of(name), lines.get(address, ("", 0))
                found[address] = Made(made.name, path or made.file, line or made.line)
            lines = {}
        elif kind == MOVE and len(data) >= MOVED.size:
            _, _, _, old, new, room, _ = MOVED.unpack_from(data)
            if old in loaded:
                name = loaded[new] = loaded.pop(old)
                found.update((address, made_of(name)) for address in within(wanted, new, room))
        at += length
    return found


def lines_of(data: bytes, wanted: list[int]) -> dict[int, tuple[str, int]]:
    """Returns {address: (file, line)} for the wanted addresses that a record of lines covers."""
    if len(data) < DEBUGGED.size:
        return {}
    _, count = DEBUGGED.unpack_from(data)
    entries: list[tuple[int, str, int]] = []
    at, path = DEBUGGED.size, ""
    while len(entries) < min(count, LINES_MOST) and at + ENTRY.size <= len(data):
        address, line, _ = ENTRY.unpack_from(data, at)
        end = data.find(b"\0", at + ENTRY.size)
        if end < 0:
            break
        text = data[at + ENTRY.size:end]
        path = path if text == b"\xff" else clean_bytes(text[:NAME_MOST], NAME_MOST)
        entries.append((address, path, min(line, (1 << 31) - 1)))
        at = end + 1
    entries.sort(key=lambda entry: entry[0])
    found = {}
    for place, (address, path, line) in enumerate(entries):
        following = entries[place + 1][0] if place + 1 < len(entries) else address + 1
        for one in within(wanted, address, max(following - address, 1)):
            found[one] = (clean(path), line)
    return found
