"""What a Python process that runs on HAKMEM can ask of it. `import hakmem` provides the names."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Union

from hakmem import paths

if TYPE_CHECKING:
    from hakmem.heap.stacks import Heap as StackHeap
    from hakmem.live.descriptor import Descriptor

# The first fields of the struct in include/hakmem/stats.h, which never change their places. stats() returns them.
STATS = ("size", "version", "mapped", "live", "cached", "free_in_slab", "retained", "metadata", "purged",
         "footprint_peak", "limit")
TOLD = STATS[2:]
# Bytes between samples: HAKMEM_HEAP_PROFILE_RATE's default, and the rate that samples every block.
USUAL_RATE, EVERY_BLOCK = 512 << 10, 1


# A label's value: a text, a number, or a number with its unit.
LabelValue = Union[str, int, tuple[int, str]]


class NotActive(RuntimeError):
    """This process does not run on HAKMEM."""


class DlInfo(ctypes.Structure):
    """Dl_info of dladdr()."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


class StatsHead(ctypes.Structure):
    """The first fields of struct hak_stats."""

    _fields_ = [(name, ctypes.c_uint64) for name in STATS]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Returns the HAKMEM that is this process's malloc; raises NotActive if another malloc is."""
    process = ctypes.CDLL(None, use_errno=True)
    # A program that calls malloc may give it an address of its own (a PLT entry), so malloc's address does not tell
    # who serves it. HAKMEM and glibc define pvalloc beside malloc, and no interpreter calls it: its address lies in the
    # first library that defines it.
    if not hasattr(process, "hak_stats_get") or base_of(process, "pvalloc") != base_of(process, "hak_stats_get"):
        preload = paths.hakmem_library()
        raise NotActive("this process does not run on HAKMEM: another malloc serves it, and a process gets its malloc "
                        f"when it starts. Start it with `hakmem run -- python ...`, or with LD_PRELOAD={preload}")
    process.hak_stats_get.argtypes, process.hak_stats_get.restype = [ctypes.POINTER(StatsHead),
                                                                     ctypes.c_size_t], ctypes.c_size_t
    process.hak_profile_start.argtypes, process.hak_profile_start.restype = [ctypes.c_size_t], ctypes.c_int
    process.hak_profile_stop.argtypes, process.hak_profile_stop.restype = [], None
    process.hak_profile_write_fd.argtypes, process.hak_profile_write_fd.restype = [ctypes.c_int], ctypes.c_int
    process.hak_collect.argtypes, process.hak_collect.restype = [ctypes.c_bool], ctypes.c_size_t
    return process


def base_of(process: ctypes.CDLL, name: str) -> int | None:
    """Returns where the file of a function is mapped."""
    info = DlInfo()
    process.dladdr(ctypes.cast(getattr(process, name), ctypes.c_void_p), ctypes.byref(info))
    base: int | None = info.base
    return base


def is_active() -> bool:
    """Returns whether this process runs on HAKMEM."""
    try:
        library()
    except NotActive:
        return False
    return True


def stats() -> dict[str, int]:
    """Returns {name: bytes}: mapped = live + cached + free_in_slab + retained + metadata; purged, footprint_peak,
    limit. See docs/statistics.md."""
    head = StatsHead()
    library().hak_stats_get(ctypes.byref(head), ctypes.sizeof(head))
    return {name: getattr(head, name) for name in TOLD}


def collect() -> int:
    """Gives all free memory back to the system. Returns its bytes."""
    collected: int = library().hak_collect(True)
    return collected


# ---- The heap profile ----


def state() -> tuple[bool, int]:
    """Returns (whether the profile takes samples, bytes between them)."""
    from hakmem.live import ProcessMemory

    memory, descriptor = ProcessMemory(os.getpid()), own_descriptor()
    found = descriptor.root(memory, "profile")
    return bool(found["on"]), found["mean"]


@lru_cache(maxsize=1)
def own_descriptor() -> Descriptor:
    """Returns the Descriptor of this process's HAKMEM. It never moves, so one read is enough."""
    from hakmem.live import ProcessMemory, read_descriptor

    return read_descriptor(ProcessMemory(os.getpid()),
                           ctypes.addressof(ctypes.c_char.in_dll(library(), "hak_descriptor")))


def write() -> bytes:
    """Returns the present profile as the bytes of a file."""
    with tempfile.TemporaryFile() as file:
        number = library().hak_profile_write_fd(file.fileno())
        if number:
            raise OSError(number, f"the heap profile could not be written: {os.strerror(number)}")
        file.seek(0)
        return file.read()


def heap_snapshot() -> Heap:
    """Returns the present Heap: what is in use, by allocation site. Raises RuntimeError if no profile is taken."""
    library()
    on, _ = state()
    if not on:
        raise RuntimeError("no heap profile is taken: `with hakmem.profile():` takes one, and `hakmem run "
                           "--heap-profile FILE` takes one from the start")
    return Heap(write())


@contextmanager
def profile(rate: int = USUAL_RATE) -> Iterator[Heap]:
    """Takes a heap profile of what happens in the body. The Heap is filled in at the body's end: what the body
    allocated, and how much of that is still in use. rate: mean bytes between samples; 1 samples every block."""
    if not isinstance(rate, int) or rate < 1:
        raise ValueError(f"rate={rate!r}: bytes between samples are wanted, 1 or more")
    here = library()
    on, before_rate = state()
    number = here.hak_profile_start(rate)
    if number:
        raise OSError(number, f"the heap profile could not be started: {os.strerror(number)}")
    here.hak_collect(False)  # the calling thread takes part at once
    heap = Heap(None, write())
    try:
        yield heap
    finally:
        heap.data = write()
        if on:
            here.hak_profile_start(before_rate)
        else:
            here.hak_profile_stop()


# ---- Labels ----


@contextmanager
def labels(**values: LabelValue) -> Iterator[None]:
    """Labels what the body allocates in this thread, as in labels(tenant="a", rows=7, part=(4096, "bytes")). Samples
    of the heap profile carry the labels, for `hakmem heap --by-label tenant`. A value is a text, a number, or a
    number with its unit. Does nothing if the process runs on another malloc. Raises ValueError for a value that
    hak_profile_label() of hakmem/profile.h refuses."""
    here = labelling()
    if here is None:
        yield
        return
    scope = here.hak_profile_scope_begin()
    try:
        for key, value in values.items():
            number = put_label(here, key, value)
            if number not in (0, errno.ENOSPC):  # without room, the samples tell that labels are lost
                raise ValueError(f"{key}={value!r} is no label: {os.strerror(number)}")
        yield
    finally:
        here.hak_profile_scope_end(scope)


def put_label(here: ctypes.CDLL, key: str, value: LabelValue) -> int:
    """Sets a label and returns an errno."""
    if isinstance(value, str):
        if "\0" in value:
            return errno.EILSEQ
        wrong: int = here.hak_profile_label(key.encode(), value.encode("utf-8", "surrogateescape"))
        return wrong
    number, unit = value if isinstance(value, tuple) else (value, None)
    if not isinstance(number, int) or not -1 << 63 <= number < 1 << 63:
        raise ValueError(f"{key}={value!r} is no label: a text, a number of 64 bits, or such a number and its unit is "
                         "wanted")
    wrong = here.hak_profile_label_number(key.encode(), number, unit.encode() if unit else None)
    return wrong


@lru_cache(maxsize=1)
def labelling() -> ctypes.CDLL | None:
    """Returns the library with the functions for labels; None if this process's malloc is another one."""
    try:
        here = library()
    except NotActive:
        return None
    here.hak_profile_label.argtypes, here.hak_profile_label.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_int
    here.hak_profile_label_number.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p]
    here.hak_profile_label_number.restype = ctypes.c_int
    here.hak_profile_scope_begin.argtypes, here.hak_profile_scope_begin.restype = [], ctypes.c_uint
    here.hak_profile_scope_end.argtypes, here.hak_profile_scope_end.restype = [ctypes.c_uint], None
    return here


# ---- What a profile says ----


class Heap:
    """What a heap profile says: what was allocated and what is in use, by site. A notebook shows its flame graph."""

    def __init__(self, data: bytes | None, base: bytes | None = None) -> None:
        """data, base: profiles as the bytes of files. The base's figures are subtracted."""
        self.data, self.base = data, base

    def _taken(self) -> bytes:
        """Returns the profile as the bytes of a file."""
        if self.data is None:
            raise RuntimeError("the profile is still being taken: look at it after the `with` block")
        return self.data

    @cached_property
    def found(self) -> StackHeap:
        """The profile as a stacks.Heap, with names."""
        from hakmem.heap.stacks import compare

        heap = self.parsed(self._taken())
        return heap if self.base is None else compare(heap, self.parsed(self.base))

    @staticmethod
    def parsed(data: bytes) -> StackHeap:
        """Returns the stacks.Heap of a file's bytes."""
        from hakmem.heap.file import unpack
        from hakmem.heap.profile_pb2 import Profile
        from hakmem.heap.stacks import add_up
        from hakmem.heap.symbolize import symbolize

        made = Profile()
        made.ParseFromString(unpack(data))
        symbolize(made)
        return add_up({"this process": made})

    def total(self, name: str) -> int:
        """Returns the total of a sample type."""
        return self.found.total(self.found.index(name))

    @property
    def in_use(self) -> int:
        """Bytes in use, as the samples estimate."""
        return self.total("inuse_space")

    @property
    def blocks_in_use(self) -> int:
        """Blocks in use, as the samples estimate."""
        return self.total("inuse_objects")

    @property
    def allocated(self) -> int:
        """Bytes that were allocated, in use or not."""
        return self.total("alloc_space")

    @property
    def blocks_allocated(self) -> int:
        """Blocks that were allocated, in use or not."""
        return self.total("alloc_objects")

    def sites(self, name: str = "inuse_space", lines: bool = True) -> list[tuple[int, str, str]]:
        """Returns [(figure, function, where)] of the sites whose figure is not 0, most first."""
        from hakmem.heap.sites import order, sites_of

        index = self.found.index(name)
        rows = order(sites_of(self.found, lines), index, "flat", self.found.compared)
        return [(row.flat_change(index), row.name, row.place) for row in rows if row.flat_change(index)]

    def compare(self, earlier: Heap) -> Heap:
        """Returns the difference to an earlier Heap of this process."""
        return Heap(self.data, earlier.data)

    def save(self, path: str | Path) -> None:
        """Writes the profile for `hakmem heap` and pprof, without the base it is compared with."""
        from hakmem.heap.file import write_whole

        write_whole(path, self._taken())

    def html(self) -> str:
        """Returns a self-contained page with a flame graph."""
        from hakmem.heap.page import page_text

        return page_text(self.found, self.found, self.found.index("inuse_space"), ["this process"],
                         "its start" if self.base else None, True)

    def __repr__(self) -> str:
        if self.data is None:
            return "<hakmem.Heap: being taken>"
        from hakmem.heap.show import value_text

        return (f"<hakmem.Heap: {value_text(self.in_use, 'bytes')} in use in {self.blocks_in_use:,} blocks, "
                f"{value_text(self.allocated, 'bytes')} allocated>")

    def _repr_html_(self) -> str:
        """As notebooks show it: in a frame of its own, whose scripts reach nothing of the notebook."""
        from html import escape

        return (f'<iframe sandbox="allow-scripts" title="Flame graph" style="width: 100%; height: 640px; border: 0" '
                f'srcdoc="{escape(self.html())}"></iframe>')
