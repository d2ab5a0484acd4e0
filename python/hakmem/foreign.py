"""Opens files whose paths or contents other processes chose. No other code does.

The owner of a process decides what lies at the paths of its mappings: a FIFO, a device, a file that shrinks while it is
read, another file than the mapped one. So a path is first examined without opening it (O_PATH): it must be a regular
file with the mapping's device and inode. Opening it must not wait (O_NONBLOCK) nor take a terminal (O_NOCTTY). Reading
uses pread() with a limit, because mapping the file would end the reader by SIGBUS if the file shrinks.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Do not wait for a writer, do not become the terminal, do not pass the file on to a program.
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# On these file systems stat() and /proc/PID/maps give different devices: that of the mount or subvolume, and the
# disk's.
OWN_DEVICES = (0x794C7630, 0x9123683E)  # overlayfs, btrfs
# A limit above every file of /proc/PID: 65,530 mappings take 8 MiB in maps and 50 MiB in smaps.
TEXT_MOST = 256 << 20
# Bytes of one step of find().
CHUNK = 1 << 20
PROC_CHUNK = 1 << 16  # the kernel gives a few pages a call at most


@dataclass(frozen=True)
class Mapping:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    flags: str
    offset: int
    device: str
    inode: int
    path: str

    @property
    def size(self) -> int:
        """The bytes of the mapping."""
        return self.end - self.start


class TooLarge(Exception):
    """There is more data than the limit allows."""


class Reader(io.FileIO):
    """An open regular file, read by pread() up to the size that it had at first. fileno() is for fstat()."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.at = 0
        self.status = os.fstat(descriptor)
        self.size = self.status.st_size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a place in the file."""
        place = offset + (0, self.at, self.size)[whence]
        if not 0 <= place < 1 << 63:
            raise ValueError(f"no place in a file: {place}")
        self.at = place
        return place

    def tell(self) -> int:
        """Returns the place in the file."""
        return self.at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Reads into a buffer."""
        view = memoryview(buffer).cast("B")
        data = self.pread(len(view), self.at)
        view[:len(data)] = data
        self.at += len(data)
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """Returns at most `size` bytes, and no more than the file has: a damaged file can ask for exabytes."""
        if size is None or size < 0:
            size = self.size
        data = self.pread(size, self.at)
        self.at += len(data)
        return data

    def readall(self) -> bytes:
        """Reads the rest."""
        return self.read()

    def pread(self, size: int, offset: int) -> bytes:
        """Returns bytes at an offset."""
        size = min(size, self.size - offset)
        return os.pread(self.fileno(), size, offset) if size > 0 else b""

    def find(self, wanted: bytes, most: int) -> int:
        """Returns the first place of the bytes within the file's first `most` bytes, or -1."""
        end, at = min(self.size, most), 0
        while at < end:
            data = self.pread(min(CHUNK, end - at) + len(wanted) - 1, at)
            if not data:
                return -1
            place = data.find(wanted)
            if place >= 0:
                return at + place
            at += CHUNK
        return -1


def open_regular(path: str | os.PathLike[str],
                 fits: Callable[[os.stat_result, int], bool] | None = None) -> Reader | None:
    """Returns a Reader of the regular file at a path. Returns None if it is something else or if fits(status,
    descriptor) rejects it. Raises OSError if it may not be read."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode) or fits is not None and not fits(status, place):
            return None
        # Opens the file that was examined, even if another one has taken its path since.
        reader = Reader(os.open(f"/proc/self/fd/{place}", FLAGS))
    finally:
        os.close(place)
    return reader


def open_mapped(pid: int, mapping: Mapping) -> Reader | None:
    """Returns a Reader of the file behind a mapping of a process; None if it is not available.

    map_files leads to the mapped file itself, if we may follow it. The path may by now belong to another file."""
    def fits(status: os.stat_result, place: int) -> bool:
        return status.st_ino == mapping.inode and same_device(status.st_dev, mapping.device, place)
    path = mapping.path.replace("\\012", "\n")  # as the kernel writes it
    for candidate in (f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", f"/proc/{pid}/root{path}"):
        try:
            reader = open_regular(candidate, fits)
        except (OSError, ValueError):
            continue
        if reader is not None:
            return reader
    return None


def same_device(number: int, text: str, place: int) -> bool:
    """Returns whether a device's number is the one that /proc/PID/maps shows as text. On OWN_DEVICES' file systems the
    two cannot be compared, so a device without a major number passes there."""
    if f"{os.major(number):02x}:{os.minor(number):02x}" == text:
        return True
    return os.major(number) == 0 and file_system(place) in OWN_DEVICES


def file_system(place: int) -> int:
    """Returns the magic number of an open file's file system; 0 if the kernel does not tell."""
    import ctypes  # a slow import that few commands need

    buffer = (ctypes.c_long * 64)()  # struct statfs begins with it
    return buffer[0] if ctypes.CDLL(None).fstatfs(place, buffer) == 0 else 0


def read_proc(path: str | os.PathLike[str], most: int = TEXT_MOST) -> bytes:
    """Returns the bytes of a file of /proc; raises TooLarge if there are more than `most`."""
    descriptor = os.open(path, FLAGS)
    try:
        parts, left = [], most + 1
        while left > 0 and (part := os.read(descriptor, min(PROC_CHUNK, left))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if left <= 0:
        raise TooLarge(f"{path} has more than {most >> 20} MiB")
    return b"".join(parts)
