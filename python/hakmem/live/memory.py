"""The memory of another process, through process_vm_readv, and what /proc says of it."""

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path

IOV_MAX = 1024
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class LiveError(Exception):
    """The process cannot be read; the text says why and what helps."""


class NoProcess(LiveError):
    """There is no such process, or none any more."""


class NoPermission(LiveError):
    """The process is not ours to read."""


class Unreadable(LiveError):
    """Nothing is mapped at an address, or not any more."""


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
    def size(self):
        return self.end - self.start


class IoVec(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.process_vm_readv.restype = ctypes.c_ssize_t
LIBC.process_vm_readv.argtypes = [ctypes.c_int, ctypes.POINTER(IoVec), ctypes.c_ulong, ctypes.POINTER(IoVec),
                                  ctypes.c_ulong, ctypes.c_ulong]


class ProcessMemory:
    """Reads a process. Another class with read, read_many, mappings and open_mapping serves as well: gdb's, a core's."""

    def __init__(self, pid):
        self.pid = pid
        self.begun = start_time(pid)

    def read(self, address, size):
        """The bytes at an address."""
        return self.read_many([(address, size)])[0]

    def read_many(self, ranges):
        """The bytes at several (address, size), in few system calls."""
        ranges = list(ranges)
        buffer = ctypes.create_string_buffer(max(sum(size for _, size in ranges), 1))
        at = 0
        for first in range(0, len(ranges), IOV_MAX):
            at += self.read_batch(ranges[first:first + IOV_MAX], ctypes.addressof(buffer) + at)
        whole, parts, at = memoryview(buffer), [], 0
        for _, size in ranges:
            parts.append(whole[at:at + size].tobytes())
            at += size
        return parts

    def read_batch(self, ranges, target):
        """Reads up to IOV_MAX ranges to the address `target` here; returns their bytes."""
        wanted = sum(size for _, size in ranges)
        local = IoVec(target, wanted)
        remote = (IoVec * len(ranges))(*ranges)
        got = LIBC.process_vm_readv(self.pid, ctypes.byref(local), 1, remote, len(ranges), 0)
        if got != wanted:
            self.refuse(ctypes.get_errno() if got < 0 else errno.EFAULT, ranges, max(got, 0))
        return wanted

    def refuse(self, number, ranges, got):
        """Raises what an error number of a read means."""
        if number == errno.EPERM:
            raise permission_error(self.pid)
        if number == errno.ESRCH or start_time(self.pid, gone=True) != self.begun:
            raise NoProcess(f"process {self.pid} ended while it was read")
        for address, size in ranges:
            if got < size:
                raise Unreadable(f"process {self.pid}: nothing to read at {address:#x} ({os.strerror(number)})")
            got -= size

    def mappings(self):
        """/proc/PID/maps."""
        return [parse_mapping(line) for line in self.proc_text("maps").splitlines()]

    def proc_text(self, name):
        """The text of a file of /proc/PID."""
        try:
            text = Path(f"/proc/{self.pid}/{name}").read_bytes().decode(errors="replace")
        except PermissionError:
            raise permission_error(self.pid) from None
        except (FileNotFoundError, ProcessLookupError):
            raise NoProcess(f"process {self.pid} ended while it was read") from None
        if start_time(self.pid, gone=True) != self.begun:
            raise NoProcess(f"process {self.pid} ended while it was read")
        return text

    def open_mapping(self, mapping):
        """The file behind a mapping, open for reading, or None if it is not to be had."""
        for path in (f"/proc/{self.pid}/root{mapping.path}",
                     f"/proc/{self.pid}/map_files/{mapping.start:x}-{mapping.end:x}"):
            try:
                file = open(path, "rb")
            except OSError:
                continue
            if os.fstat(file.fileno()).st_ino == mapping.inode:
                return file
            file.close()
        return None

    def command(self):
        """The process's name."""
        return self.proc_text("comm").strip()

    def thread_name(self, tid):
        """A thread's name, or "" if it is gone."""
        try:
            return Path(f"/proc/{self.pid}/task/{tid}/comm").read_text(errors="replace").strip()
        except OSError:
            return ""


def parse_mapping(line):
    """A Mapping from its line."""
    words = line.split(None, 5)
    start, _, end = words[0].partition("-")
    return Mapping(int(start, 16), int(end, 16), words[1], int(words[2], 16), words[3], int(words[4]),
                   words[5].strip() if len(words) > 5 else "")


def start_time(pid, gone=False):
    """When the process began, in the kernel's ticks, which tells it from a later one of the same number.

    Of one that is not there, or only waits to be reaped: NoProcess, or with `gone` None.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        text = ""
    fields = text.rpartition(")")[2].split()
    if len(fields) > 19 and fields[0] not in "ZX":
        return int(fields[19])
    if gone:
        return None
    raise NoProcess(f"process {pid} has ended and waits for its parent" if fields else f"there is no process {pid}")


def permission_error(pid):
    """A NoPermission that says whose the process is and what forbids it."""
    text = f"no permission to read process {pid}"
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return NoProcess(f"process {pid} ended while it was read")
    text += f" of uid {owner} as uid {os.geteuid()}"
    scope = YAMA.read_text().strip() if YAMA.exists() else "absent"
    text += f" (kernel.yama.ptrace_scope is {scope}"
    if scope not in ("0", "absent") and owner == os.geteuid():
        text += ": only a parent or root may read; set it to 0 or run this as root)"
    elif os.geteuid() == 0:
        text += "): this root lacks CAP_SYS_PTRACE, or the process is kept from all"
    else:
        text += "); run this as that user or as root"
    return NoPermission(text)
