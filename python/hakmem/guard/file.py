"""Reads the reports of guarded blocks, as HAKMEM_GUARD_FILE has them: a line of JSON each."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from hakmem.clean import clean

VERSION = 1
LINE_MOST = 1 << 20  # bytes of a report
FILE_MOST = 1 << 26  # bytes of a file
FRAMES_MOST = 256
ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
BUILD_ID = re.compile(r"(?:[0-9a-f]{2}){0,32}")
ERRORS = ("overflow", "underflow", "use-after-free", "no-block", "double-free", "invalid-free", "damage-behind",
          "damage-before")
ACCESSES = ("read", "write", "execute", "access")
STACKS = {"allocated": "allocated", "freed": "freed", "accessed": "accessed", "called": "called"}


T = TypeVar("T")


class GuardError(click.ClickException):
    """What is wrong with a file of reports."""


class Unsound(Exception):
    """What is wrong with a report."""


@dataclass(frozen=True)
class Stack:
    """What a thread did and where: addresses inside the calls, innermost first."""

    what: str
    thread: int
    frames: list[int]


@dataclass(frozen=True)
class Module:
    """A mapping of code."""

    start: int
    end: int
    offset: int
    build_id: str
    path: str


@dataclass(frozen=True)
class Report:
    """An error. function: the function called with the address; "" if the address was touched, as `access` says."""

    error: str
    access: str
    function: str
    address: int
    time_ns: int
    process: int
    thread: int
    thread_name: str
    block: int | None  # its address
    size: int
    offset: int
    freed: bool
    stacks: list[Stack]
    modules: list[Module] = field(default_factory=list)


def read_reports(path: str | Path) -> list[Report]:
    """Returns the Reports of a file, in its order; raises GuardError if the file is wrong."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_MOST + 1)
    except OSError as error:
        raise GuardError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > FILE_MOST:
        raise GuardError(f"{path}: is larger than {FILE_MOST >> 20} MiB")
    reports = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            reports.append(parse(line))
        except Unsound as error:
            raise GuardError(f"{path}: line {number} is no report of HAKMEM's: {error}") from error
    if not reports:
        raise GuardError(f"{path}: holds no reports")
    return reports


def parse(line: bytes) -> Report:
    """Returns the Report in a line."""
    if len(line) > LINE_MOST:
        raise Unsound("it is too long")
    try:
        made = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise Unsound("it is not JSON") from error
    if typed(made, dict, "it").get("version") != VERSION:
        raise Unsound(f"its version is not {VERSION}")
    function, block = made.get("function"), made.get("block")
    thread = typed(made.get("thread"), dict, "thread")
    if block is not None:
        typed(block, dict, "block")
    return Report(
        error=one_of(made, "error", ERRORS), access="" if function else one_of(made, "access", ACCESSES),
        function=text(made, "function") if function else "", address=address(made.get("address"), "address"),
        time_ns=time_of(made), process=number(made, "process"), thread=number(thread, "id"),
        thread_name=text(thread, "name"), block=address(block.get("address"), "block.address") if block else None,
        size=number(block, "size") if block else 0, offset=number(block, "offset", signed=True) if block else 0,
        freed=bool(block) and block.get("state") == "freed",
        stacks=[stack(made[name], name) for name in STACKS if made.get(name) is not None],
        modules=[module(row) for row in typed(made.get("modules"), list, "modules")[:FRAMES_MOST]])


def typed(value: object, kind: type[T], name: str) -> T:
    """Returns a value if it has the type; raises Unsound otherwise."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Unsound(f"`{name}` is missing or of another kind")
    return value


def number(row: dict[str, Any], name: str, signed: bool = False) -> int:
    """Returns an integer of a row."""
    value = typed(row.get(name), int, name)
    if not (-(1 << 63) if signed else 0) <= value < 1 << 64:
        raise Unsound(f"`{name}` is out of range")
    return value


def time_of(row: dict[str, Any]) -> int:
    """Returns the time of a row."""
    value = typed(row.get("time_ns"), str, "time_ns")
    if not re.fullmatch(r"[0-9]{1,19}", value):
        raise Unsound("`time_ns` is no number")
    return int(value)


def address(value: object, name: str) -> int:
    """Returns the address in a text."""
    found = typed(value, str, name)
    if not ADDRESS.fullmatch(found):
        raise Unsound(f"`{name}` is no address")
    return int(found, 16)


def text(row: dict[str, Any], name: str) -> str:
    """Returns a clean text of a row."""
    return clean(typed(row.get(name), str, name).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def one_of(row: dict[str, Any], name: str, words: Collection[str]) -> str:
    """Returns a text of a row that must be one of the words."""
    value = typed(row.get(name), str, name)
    if value not in words:
        raise Unsound(f"`{name}` is none that is known")
    return value


def stack(row: dict[str, Any], name: str) -> Stack:
    """Returns the Stack of a row."""
    typed(row, dict, name)
    frames = typed(row.get("frames"), list, f"{name}.frames")
    if len(frames) > FRAMES_MOST:
        raise Unsound(f"`{name}.frames` has too many frames")
    return Stack(STACKS[name], number(row, "thread"), [address(frame, f"{name}.frames") for frame in frames])


def module(row: dict[str, Any]) -> Module:
    """Returns the Module of a row. Its path is kept unchanged because it names a file."""
    typed(row, dict, "modules")
    build_id = typed(row.get("build_id"), str, "build_id")
    if not BUILD_ID.fullmatch(build_id):
        raise Unsound("`build_id` is none")
    path = typed(row.get("path"), str, "path")
    if "\0" in path:
        raise Unsound("`path` is none")
    return Module(address(row.get("start"), "start"), address(row.get("end"), "end"), number(row, "offset"), build_id,
                  str(Path(path)) if path else "")
