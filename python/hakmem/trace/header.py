"""Reads the header of a trace file. tools/trace/trace_file.h defines its form."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import click

MAGIC = b"HAKTRACE"
VERSION = 1
HEADER = struct.Struct("<8sII11QII")


class TraceError(click.ClickException):
    """A file is no trace, or an incomplete one."""


@dataclass(frozen=True)
class Header:
    """The header's fields."""

    file_bytes: int
    operations: int
    calls: int
    slots: int
    threads: int
    runs: int
    text_bytes: int
    failed: int
    foreign_frees: int
    lost_frees: int
    in_flight: int
    stopped: int
    pid: int
    checksum: int = 0


def read_header(path: str | Path) -> Header:
    """Returns the header of a trace; raises TraceError if the file cannot be one."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            head = file.read(HEADER.size)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    if head[:8] != MAGIC:
        raise TraceError(f"{path} is no trace of 'hakmem trace record'")
    if len(head) < HEADER.size:
        raise TraceError(f"{path} is truncated: shorter than its header")
    _, version, checksum, *fields = HEADER.unpack(head)
    if version != VERSION:
        raise TraceError(f"{path} is a trace of version {version}, this is for {VERSION}; record it anew")
    header = replace(Header(*fields), checksum=checksum)
    if size != header.file_bytes:
        state = "truncated" if size < header.file_bytes else "damaged"
        raise TraceError(f"{path} is {state}: it has {size} bytes, its header says {header.file_bytes}")
    return header
