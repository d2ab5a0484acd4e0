"""Reads the memory of another process with process_vm_readv, and what /proc tells about it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

from hakmem.clean import clean, clean_bytes
from hakmem.foreign import Mapping, Reader, TooLarge, open_mapped, read_proc

IOV_MAX = 1024
# Limits of bytes: for one call of read_many(); for one look at a process, which may also read a part of what is mapped.
# A SuperSlab's header is 2 % of it. A look at a heap of 1 GiB reads 20 MiB, at a heap profile of 100,000 sites 200 MiB.
READ_MOST = 512 << 20
LOOK_LEAST, LOOK_PART, LOOK_MOST = 1 << 30, 16, 32 << 30
# What the reader of a damaged or hostile structure may raise.
UNSOUND = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, StopIteration,
           TypeError, ValueError, struct.error)
ENDED = ("", "Z", "X")  # the states of a thread that is gone, or only waits to be reaped
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class LiveError(Exception):
    """The process cannot be read. The text says why and what helps."""


class NoProcess(LiveError):
    """The process does not exist, or no longer."""


class NoPermission(LiveError):
    """We may not read the process."""


class Unreadable(LiveError):
    """Nothing is mapped at an address, or no longer."""


class Excess(LiveError):
    """More would have to be read than is sensible."""


class Memory(Protocol):
    """What a reader of a heap needs: the memory of a process, or of what gdb debugs."""

    def read(self, address: int, size: int) -> bytes:
        """Returns the bytes at an address."""

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes at several (address, size)."""


class MappedMemory(Memory, Protocol):
    """Memory in which a reader can also look for HAKMEM."""

    def mappings(self) -> list[Mapping]:
        """Returns the Mappings."""

    def open_mapping(self, mapping: Mapping) -> Reader | None:
        """Opens the file behind a mapping; None if it is not available."""


def begin_look(memory: Memory) -> None:
    """Limits how much a look at a running process reads; a core has no limit."""
    if isinstance(memory, ProcessMemory):
        memory.begin_look()


@contextmanager
def sense(memory: Memory) -> Iterator[None]:
    """Turns errors that a hostile or damaged process causes in a reader into a LiveError of one line."""
    try:
        yield
    except UNSOUND as error:
        raise LiveError(f"{name_of(memory)}: what is in its memory makes no sense ({problem_text(error)})") from error


def problem_text(error: BaseException) -> str:
    """Returns an error's kind and text in one line."""
    return clean(f"{type(error).__name__}: {error}", 200)


def name_of(memory: object) -> str:
    """Returns what messages call the process."""
    pid = getattr(memory, "pid", None)
    return f"process {pid}" if pid else "the program"


class IoVec(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.process_vm_readv.restype = ctypes.c_ssize_t
LIBC.process_vm_readv.argtypes = [ctypes.c_int, ctypes.POINTER(IoVec), ctypes.c_ulong, ctypes.POINTER(IoVec),
                                  ctypes.c_ulong, ctypes.c_ulong]


class ProcessMemory:
    """The Memory of a running process."""

    def __init__(self, pid: int) -> None:
        check_proc()
        start_time(pid)  # raises if there is no such process
        self.pid = living_thread(pid) or pid  # for the kernel either names the process
        self.begun = start_time(self.pid)
        self.left: int | None = None  # bytes that may still be read in this look

    def begin_look(self) -> None:
        """Limits how much is read until the next call, because the sizes that a process claims cannot be trusted."""
        # Pages of private writable memory.
        mapped = int(self.proc_text("statm").split()[5]) * os.sysconf("SC_PAGESIZE")
        self.left = min(LOOK_LEAST + mapped // LOOK_PART, LOOK_MOST)

    def read(self, address: int, size: int) -> bytes:
        """Returns the bytes at an address."""
        return self.read_many([(address, size)])[0]

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes at several (address, size), with few system calls."""
        ranges = list(ranges)
        if any(size < 0 for _, size in ranges):
            raise Unreadable(f"process {self.pid}: fewer than no bytes to read")
        total = self.allow(sum(size for _, size in ranges))
        buffer = ctypes.create_string_buffer(max(total, 1))
        at = 0
        for first in range(0, len(ranges), IOV_MAX):
            at += self.read_batch(ranges[first:first + IOV_MAX], ctypes.addressof(buffer) + at)
        whole, parts, at = memoryview(buffer), [], 0
        for _, size in ranges:
            parts.append(whole[at:at + size].tobytes())
            at += size
        return parts

    def allow(self, size: int) -> int:
        """Returns the size if that many bytes may be read; raises Excess otherwise."""
        if self.left is not None:
            self.left -= size
        if size > READ_MOST or self.left is not None and self.left < 0:
            raise Excess(
                f"process {self.pid}: its heap asks for more to be read ({size:,} bytes at once) than a heap of "
                "its size has; it makes no sense")
        return size

    def read_batch(self, ranges: list[tuple[int, int]], target: int) -> int:
        """Reads up to IOV_MAX ranges into our memory at `target` and returns the number of bytes."""
        wanted = sum(size for _, size in ranges)
        local = IoVec(target, wanted)
        try:
            remote = (IoVec * len(ranges))(*(IoVec(address, size) for address, size in ranges))
        except (TypeError, OverflowError):
            raise Unreadable(f"process {self.pid}: an address beyond all memory") from None
        got = LIBC.process_vm_readv(self.pid, ctypes.byref(local), 1, remote, len(ranges), 0)
        if got != wanted:
            self.refuse(ctypes.get_errno() if got < 0 else errno.EFAULT, ranges, max(got, 0))
        return wanted

    def refuse(self, number: int, ranges: Iterable[tuple[int, int]], got: int) -> NoReturn:
        """Raises the error that a failed read's errno stands for."""
        if number == errno.EPERM:
            raise permission_error(self.pid)
        if number == errno.ESRCH or start_time(self.pid, gone=True) != self.begun:
            raise NoProcess(f"process {self.pid} ended while it was read")
        for address, size in ranges:
            if got < size:
                break
            got -= size
        raise Unreadable(f"process {self.pid}: nothing to read at {address:#x} ({os.strerror(number)})")

    def rss(self) -> int:
        """Returns the RSS in bytes."""
        return int(self.proc_text("statm").split()[1]) * os.sysconf("SC_PAGESIZE")

    def mappings(self) -> list[Mapping]:
        """Returns the Mappings of /proc/PID/maps."""
        return parse_mappings(self.proc_text("maps"))

    def proc_text(self, name: str) -> str:
        """Returns the text of a file of /proc/PID."""
        try:
            text = read_proc(f"/proc/{self.pid}/{name}").decode(errors="replace")
        except TooLarge as error:
            raise Excess(f"process {self.pid}: {error}") from None
        except PermissionError:
            raise permission_error(self.pid) from None
        except (FileNotFoundError, ProcessLookupError):
            raise NoProcess(f"process {self.pid} ended while it was read") from None
        if start_time(self.pid, gone=True) != self.begun:
            raise NoProcess(f"process {self.pid} ended while it was read")
        return text

    def open_mapping(self, mapping: Mapping) -> Reader | None:
        """Opens the file behind a mapping for reading (a foreign.Reader); None if it is not available."""
        return open_mapped(self.pid, mapping)

    def command(self) -> str:
        """Returns the process's name."""
        return clean(self.proc_text("comm").removesuffix("\n"))

    def thread_name(self, tid: int) -> str:
        """Returns a thread's name, or "" if the thread is gone."""
        try:
            return clean_bytes(read_proc(f"/proc/{self.pid}/task/{tid}/comm").removesuffix(b"\n"))
        except OSError:
            return ""


def parse_mapping(line: str) -> Mapping:
    """Returns the Mapping of a line. The kernel leaves a path's characters as they are, except for line ends, which
    it writes as \\012."""
    words = line.split(" ", 5)
    start, _, end = words[0].partition("-")
    return Mapping(int(start, 16), int(end, 16), words[1], int(words[2], 16), words[3], int(words[4]),
                   words[5].lstrip(" ") if len(words) > 5 else "")


def parse_mappings(text: str) -> list[Mapping]:
    """Returns the Mappings of the text of /proc/PID/maps. Only "\\n" ends a line: paths may hold other characters that
    Python takes for line ends."""
    return [parse_mapping(line) for line in text.split("\n") if line]


def stat_fields(path: str) -> list[str]:
    """Returns the fields of a file of the form of /proc/PID/stat, from the state on; none if it is gone."""
    try:
        text = read_proc(path).decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def thread_state(pid: int, thread: int) -> str:
    """Returns the letter of a thread's state, "" if it is gone."""
    return (stat_fields(f"/proc/{pid}/task/{thread}/stat") or [""])[0]


def living_thread(pid: int) -> int | None:
    """Returns the thread whose folder in /proc shows the process's memory; None if all have ended.

    This is the first thread, whose number the process has, unless it has ended before the others."""
    while True:
        try:
            threads = sorted((int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda thread: thread != pid)
        except (FileNotFoundError, ProcessLookupError):
            return None
        for thread in threads:
            if thread_state(pid, thread) not in ENDED:
                return thread
        # The kernel's list may lack threads while others end. So it holds only if it has as many as the process, and
        # if what it has was there, ended, before these were counted and after.
        if (stat_fields(f"/proc/{pid}/stat") or [""] * 18)[17] == str(len(threads)) and all(
                thread_state(pid, thread) in ENDED[1:] for thread in threads):
            return None


def start_time(pid: int, gone: bool = False) -> int | None:
    """Returns when the process started, in the kernel's ticks. This tells it from a later process of the same number.

    If the process is gone or only waits to be reaped, raises NoProcess, or returns None with `gone`."""
    fields = stat_fields(f"/proc/{pid}/stat")
    if len(fields) > 19 and (fields[0] not in ENDED or living_thread(pid)):
        return int(fields[19])
    if gone:
        return None
    raise NoProcess(f"process {pid} has ended and waits for its parent" if fields else f"there is no process {pid}")


def check_proc() -> None:
    """Raises LiveError if /proc is of another PID namespace than this process. A PID would mean one process in /proc,
    and another one in the system calls that read memory."""
    try:
        own = os.readlink("/proc/self")
    except OSError:
        own = ""  # /proc does not show this process
    if own != str(os.getpid()):
        raise LiveError("/proc is of another PID namespace than this command, so PIDs mean other processes there; "
                        "mount the namespace's own /proc (mount -t proc proc /proc), or run the command outside")


def permission_error(pid: int) -> LiveError:
    """Returns a NoPermission that says who owns the process and what forbids reading it."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return NoProcess(f"process {pid} ended while it was read")
    scope = YAMA.read_text().strip() if YAMA.exists() else "0"
    if os.geteuid() == 0:
        why = "this root lacks CAP_SYS_PTRACE, or the process is kept from all"
    elif owner != os.geteuid():
        why = "run this as that user or as root"
    elif scope != "0":
        why = f"kernel.yama.ptrace_scope is {scope}: only a parent or root may read; set it to 0 or run this as root"
    else:
        why = "it is kept from its own user, as a program is that changed its user; run this as root"
    return NoPermission(f"no permission to read process {pid} of uid {owner} as uid {os.geteuid()}: {why}")
