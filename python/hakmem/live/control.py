"""Turns the heap profile and the guards of a running process on and off: the only code that writes into a process.

The library has a struct for requests (src/os/outside.h), which the descriptor names. Only this struct is written, and
only after checking that it is what it should be: in memory mapped from the library's own file, writable and private,
with its magic in front. A request is its values, and then one byte with its number. The library serves it at the end of
a slow call of any thread, and answers.

A thread whose calls are served by its cache makes no slow call. So its cache's table of size classes is set to 0,
byte by byte. Class 0 never has a block, so each call misses until the library fills the table again, which it does
with the request."""

from __future__ import annotations

import ctypes
import errno
import time
from dataclasses import dataclass

from hakmem.foreign import Mapping
from hakmem.live.descriptor import NUMBERS, Descriptor, find
from hakmem.live.heap import Reader, untorn
from hakmem.live.memory import LIBC, IoVec, LiveError, NoProcess, ProcessMemory, Unreadable, permission_error, sense

LIBC.process_vm_writev.restype = ctypes.c_ssize_t
LIBC.process_vm_writev.argtypes = [ctypes.c_int, ctypes.POINTER(IoVec), ctypes.c_ulong, ctypes.POINTER(IoVec),
                                   ctypes.c_ulong, ctypes.c_ulong]

# 15 bytes and a 0. The 15th is the version of the struct.
MAGIC = b"HAKMEM\x01control\x01\0"
FIELDS = {"word": 8, "settled": 8, "profile_mean": 8, "profile_ms": 8, "guard_mean": 8, "error": 4, "answered": 1}
AS_IT_IS, OFF = (1 << 64) - 1, 0
# Seconds between two looks at the answer, until threads are made to miss, and until giving up.
LOOK, NUDGE, PATIENCE = 0.01, 0.3, 3
OUT_OF_MEMORY = "out of memory for it"


class Unanswered(LiveError):
    """The process has made no call of the allocator since the request."""


@dataclass
class State:
    """What the process reports. Means are bytes; 0 is off."""

    profile_on: bool
    profile_mean: int
    guard_on: bool
    default_profile_mean: int
    default_guard_mean: int


class Control:
    """The switches of one process."""

    def __init__(self, memory: ProcessMemory, descriptor: Descriptor | None = None) -> None:
        self.memory = memory
        self.descriptor = descriptor or find(memory)
        with sense(memory):
            self.place = self.checked()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.memory.pid

    # ---- What is there ----

    def checked(self) -> int:
        """Returns the struct's address; raises LiveError if the struct is not what it should be."""
        made, pid = self.descriptor, self.pid
        if "outside" not in made.roots or "OUTSIDE_ASKED" not in made.constants or "outside" not in made.types:
            raise LiveError(f"process {pid}: its HAKMEM {made.version} takes no requests from outside; start the "
                            "program with HAKMEM_HEAP_PROFILE or HAKMEM_GUARD, or have it call hak_profile_start or "
                            "hak_guard_start")
        address, size = made.roots["outside"], made.types["outside"]
        fields = {name: made.fields[f"outside.{name}"] for name in (*FIELDS, "magic")
                  if f"outside.{name}" in made.fields}
        if (len(fields) < len(FIELDS) + 1 or made.constants["OUTSIDE_ASKED"] not in range(8) or any(
                place.count != 1 or place.size != FIELDS.get(name, len(MAGIC)) for name, place in fields.items())):
            raise self.refusal("its fields are others than this tool knows")
        home = self.mapping_of(made.address)
        for mapping in self.memory.mappings():
            if mapping.start <= address and address + size <= mapping.end:
                break
        else:
            raise self.refusal(f"nothing is mapped at {address:#x}")
        if (home is None or (mapping.device, mapping.inode) != (home.device, home.inode) or not mapping.inode
                or not mapping.flags.startswith("rw-p")):
            raise self.refusal(f"{address:#x} is not in the library's own data")
        if self.memory.read(address + fields["magic"].offset, len(MAGIC)) != MAGIC:
            raise self.refusal(f"the magic is not there at {address:#x}")
        return address

    def refusal(self, why: str) -> LiveError:
        """Returns the LiveError for a struct that may not be written."""
        return LiveError(f"process {self.pid}: nothing was written to it: its HAKMEM {self.descriptor.version} is told "
                         "of things in "
                         f"another way ({why}); use the tools of that HAKMEM")

    def mapping_of(self, address: int) -> Mapping | None:
        """Returns the mapping that holds the address, or None."""
        return next((one for one in self.memory.mappings() if one.start <= address < one.end), None)

    def state(self) -> State:
        """Returns the State of the process."""
        with sense(self.memory):
            profile, guard = (self.descriptor.root(self.memory, name) for name in ("profile", "guard"))
            options = self.descriptor.root(self.memory, "hak_options", "options")
            return State(bool(profile["on"]), profile["mean"], bool(guard["on"]), options["heap_profile_rate"],
                         options["guard_rate"])

    def field(self, name: str) -> tuple[int, int]:
        """Returns (address, size) of a field."""
        place = self.descriptor.fields[f"outside.{name}"]
        return self.place + place.offset, place.size

    def number(self, name: str) -> int:
        """Returns the value of a field."""
        return int.from_bytes(self.memory.read(*self.field(name)), "little")

    @property
    def asked_at(self) -> int:
        """The address of the byte with the request's number."""
        return self.field("word")[0] + self.descriptor.constants["OUTSIDE_ASKED"]

    def asked(self) -> int:
        """Returns the number of the latest request."""
        return self.memory.read(self.asked_at, 1)[0]

    # ---- Requests ----

    def request(self, profile_mean: int = AS_IT_IS, guard_mean: int = AS_IT_IS, profile_ms: int = 0) -> int:
        """Writes a request and returns its number. Replaces another tool's request that is not answered yet."""
        number = self.asked() % 255 + 1
        for name, value in (("profile_mean", profile_mean), ("guard_mean", guard_mean), ("profile_ms", profile_ms)):
            address, size = self.field(name)
            self.write(address, value.to_bytes(size, "little"))
        self.write(self.asked_at, bytes((number,)))
        return number

    def await_answer(self, number: int, seconds: float = PATIENCE) -> None:
        """Waits for the answer. Raises Unanswered, or a LiveError that says what the library failed to do."""
        begun, nudged = time.monotonic(), None
        while self.number("answered") != number:
            if self.asked() != number:
                raise LiveError(f"process {self.pid}: another tool has made another request meanwhile")
            waited = time.monotonic() - begun
            if nudged is None and waited > NUDGE:
                nudged = self.nudge()
            if waited > seconds:
                raise Unanswered(f"process {self.pid} has made no call of malloc or free in {seconds:g} s that its "
                                 "caches do not serve; it follows with the next such call")
            time.sleep(LOOK)
        self.mend(nudged or {})
        if failed := self.number("error"):
            name = OUT_OF_MEMORY if failed == errno.ENOMEM else errno.errorcode.get(failed, str(failed))
            raise LiveError(f"process {self.pid} could not do it: {name}")

    def nudge(self) -> dict[int, bytes]:
        """Makes each thread's next small malloc a slow call. Returns {address of a table: its bytes before}."""
        place = self.descriptor.fields.get("thread_cache.class_of")
        if place is None or place.size != 1:
            return {}
        tables = {}
        for address in untorn(self.memory, self.caches):
            table = self.memory.read(address + place.offset, place.count)
            if self.is_table(table):
                tables[address + place.offset] = table
        for address, table in tables.items():
            self.write(address, bytes(len(table)))
        return tables

    def caches(self) -> list[int]:
        """Returns the addresses of the caches of live threads."""
        reader = Reader(self.memory, self.descriptor)
        reader.read_roots()
        reader.read_slots()
        reader.read_heaps()
        self.sizes = reader.classes["size"]
        return [heap["cache"] for heap in reader.heaps
                if heap["state"] == self.descriptor.constants["HEAP_LIVE"] and heap["cache"]
                and not heap["cache_purged"] and reader.in_metadata(heap["cache"])]

    def is_table(self, table: bytes) -> bool:
        """Returns whether the bytes are a cache's table: the class, or its run, of each multiple of 16 bytes."""
        classes = [number % self.descriptor.fields["thread_cache.bins"].count for number in table]
        return all(number and self.sizes[number] >= 16 * at
                   for at, number in enumerate(classes)) and classes == sorted(classes)

    def mend(self, tables: dict[int, bytes]) -> None:
        """Repairs tables. A table that the library filled while it was being set to 0 still has zeros in it, which
        get the classes' present values."""
        fields = self.descriptor.fields
        counted = fields.get("thread_cache.counted")
        for address, before in tables.items():
            now = self.memory.read(address, len(before))
            if not any(now) or 0 not in now:
                continue
            start = address - fields["thread_cache.class_of"].offset
            runs = int.from_bytes(self.memory.read(start + counted.offset, counted.size), "little") if counted else 0
            for at, number in enumerate(now):
                if not number:
                    self.write(
                        address + at,
                        bytes([
                            before[at] % fields["thread_cache.bins"].count +
                            (runs and fields["thread_cache.bins"].count)
                        ]))

    def write(self, address: int, data: bytes) -> None:
        """Writes bytes at an address, which a method above must have checked."""
        buffer = ctypes.create_string_buffer(data, len(data))
        local, remote = IoVec(ctypes.addressof(buffer), len(data)), IoVec(address, len(data))
        done = LIBC.process_vm_writev(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if done == len(data):
            return
        number = ctypes.get_errno() if done < 0 else errno.EFAULT
        if number == errno.EPERM:
            raise permission_error(self.pid)
        if number == errno.ESRCH:
            raise NoProcess(f"process {self.pid} ended")
        raise Unreadable(f"process {self.pid}: nothing can be written at {address:#x}")


assert set(FIELDS.values()) <= set(NUMBERS)


# ---- What commands and the page do ----


def start_profile(control: Control, mean: int | None = None, seconds: float | None = None,
                  patience: float = PATIENCE) -> int:
    """Has the process take a heap profile and returns the mean. A running profile stays as it is if no mean is asked
    for. seconds: the profile turns itself off after that time."""
    state = control.state()
    if state.profile_on and not mean:
        return state.profile_mean
    mean = mean or state.default_profile_mean
    control.await_answer(control.request(profile_mean=mean, profile_ms=int((seconds or 0) * 1000)), patience)
    return mean


def stop_profile(control: Control) -> bool:
    """Turns the heap profile off. Returns False if there was none."""
    if not control.state().profile_on and control.asked() == control.number("answered"):
        return False
    control.await_answer(control.request(profile_mean=OFF))
    return True


def start_guards(control: Control, mean: int | None = None) -> int:
    """Turns the guards on and returns the mean."""
    state = control.state()
    mean = mean or state.default_guard_mean
    control.await_answer(control.request(guard_mean=mean))
    return mean


def stop_guards(control: Control) -> bool:
    """Turns the guards off. Returns False if they were off."""
    if not control.state().guard_on and control.asked() == control.number("answered"):
        return False
    control.await_answer(control.request(guard_mean=OFF))
    return True
