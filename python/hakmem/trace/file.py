"""Reads the trace file as numpy arrays. tools/trace/trace_file.h defines its form."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hakmem.clean import clean
from hakmem.trace.header import HEADER, Header, TraceError, read_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUMMED_FROM = 16
NO_SLOT = 0xFFFFFFFF
KINDS = ("", "malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc",
         "pvalloc", "free", "realloc to free", "thread")
REALLOCS = (3, 4)
FREES = (10, 11)
THREAD = 12
ABOUT = {"command": str, "date": str, "signal": str, "status": int, "child": int}
THREAD_FIELDS = np.dtype([("first", "<u8"), ("count", "<u8"), ("ended", "<u4"), ("creator", "<u4")])
OP_FIELDS = np.dtype([("slot", "<u4"), ("version", "<u4"), ("packed", "<u8")])
RUN_FIELDS = np.dtype([("thread", "<u4"), ("count", "<u4")])


@dataclass(frozen=True)
class Trace:
    """A trace's parts."""

    header: Header
    threads: NDArray[np.void]
    ops: NDArray[np.void]
    runs: NDArray[np.void]
    about: dict[str, Any]


def read_trace(path: str | Path) -> Trace:
    """Returns the Trace of a file; raises TraceError if it is damaged."""
    header = read_header(path)
    with open(path, "rb") as file:
        content = file.read()
    parts = ((THREAD_FIELDS, header.threads), (OP_FIELDS, header.operations), (RUN_FIELDS, header.runs),
             (np.dtype("u1"), header.text_bytes))
    if HEADER.size + sum(fields.itemsize * count for fields, count in parts) != len(content):
        raise TraceError(f"{path} is damaged: its parts do not fill it")
    if zlib.crc32(memoryview(content)[SUMMED_FROM:]) != header.checksum:
        raise TraceError(f"{path} is damaged: its checksum is wrong")
    arrays: list[NDArray[Any]] = []
    at = HEADER.size
    for fields, count in parts:
        arrays.append(np.frombuffer(content, fields, count, at))
        at += fields.itemsize * count
    threads, ops, runs, text = arrays
    if int(runs["count"].sum()) != header.operations:
        raise TraceError(f"{path} is damaged: its order is not that of its operations")
    if runs["thread"].max(initial=0) >= max(header.threads, 1):
        raise TraceError(f"{path} is damaged: operations of a thread beyond the last")
    try:
        about = json.loads(text.tobytes() or b"{}")
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: its text is no JSON") from error
    return Trace(header, threads, ops, runs, checked(about, path))


def checked(about: object, path: str | Path) -> dict[str, Any]:
    """Returns what the recorder wrote about the run, with only values of the right types."""
    if not isinstance(about, dict):
        raise TraceError(f"{path} is damaged: its text tells nothing of a run")
    found = {name: about[name] for name, kind in ABOUT.items() if type(about.get(name)) is kind}
    return {name: clean(value) if isinstance(value, str) else value for name, value in found.items()}
