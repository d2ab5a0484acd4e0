"""Finds out what can be known of a process on another malloc, and what HAKMEM could do for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hakmem.analyze.glibc import heaps_of
from hakmem.doctor.linkmap import loaded_objects, place, place_program, read_link_map
from hakmem.doctor.serving_checks import check_runtime, check_static, check_word_size, server_of
from hakmem.doctor.system import read_process
from hakmem.live.memory import ProcessMemory, permission_error
from hakmem.live.pages import read_areas, read_rss

if TYPE_CHECKING:
    from hakmem.analyze.glibc import Heap


@dataclass
class Foreign:
    """A process on another malloc. heaps: glibc's, as far as they can be seen."""

    pid: int
    server: str  # the library or program that defines malloc
    rss: int
    private_dirty: int  # memory of its own that it has written: blocks, stacks, variables
    threads: int
    brk_dirty: int = 0  # of private_dirty: [heap]
    heaps: list[Heap] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # memory of a language's own
    obstacle: str = ""  # why HAKMEM cannot be preloaded into its program

    @property
    def walked(self) -> list[Heap]:
        """The heaps that could be walked."""
        return [heap for heap in self.heaps if heap.free is not None]

    @property
    def arenas(self) -> int:
        """The number of heaps of threads' arenas."""
        return sum(heap.kind == "arena" for heap in self.heaps)

    @property
    def free_resident(self) -> int | None:
        """Bytes of free pages that are still resident because glibc keeps them. None if no heap could be walked."""
        return sum(heap.free_resident or 0 for heap in self.walked) if self.walked else None


def look(memory: ProcessMemory) -> Foreign:
    """Returns the Foreign of a process."""
    process = read_process(memory.pid)
    if process.mappings is None:
        raise permission_error(memory.pid)
    objects, unread = loaded_objects(memory, process.mappings)
    chain, _ = read_link_map(memory, process.auxiliary or {})
    place(objects, chain)
    place_program(objects, process, chain)
    areas = read_areas(memory)
    found = Foreign(memory.pid, server_of(objects), read_rss(memory), sum(area.dirty for area in areas),
                    int(process.status.get("Threads", 1)),
                    sum(area.dirty for area in areas if area.mapping.path == "[heap]"), unread=unread)
    found.notes = [
        f"{finding.seen}; no malloc sees them" for finding in check_runtime(objects, process.environment or {})
    ]
    program = next((each for each in objects if each.path == process.executable), None)
    if problems := [*check_word_size(program), *check_static(program)]:
        found.obstacle = problems[0].seen
    if found.server == "the C library" and any(each.name.startswith(("libc.so.6", "libc-2.")) for each in objects):
        found.server = "glibc"
        found.heaps = heaps_of(memory)
    elif found.server == "the C library":
        found.server = "the C library's malloc, which is not glibc's"
    return found
