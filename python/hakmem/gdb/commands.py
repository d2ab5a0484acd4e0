"""The commands `hakmem info`, `classes`, `heaps`, `block` and `walk` in gdb."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import gdb
from hakmem.compat import zip_strict
from hakmem.gdb import blocks
from hakmem.gdb.memory import GdbMemory, find_descriptor
from hakmem.live.heap import snapshot_by
from hakmem.live.memory import LiveError
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.live.descriptor import Descriptor
    from hakmem.live.model import Snapshot

SHOWN_MOST = 1000


def look() -> tuple[GdbMemory, Descriptor, Snapshot]:
    """Returns what all commands need: (memory, descriptor, snapshot)."""
    try:
        memory = GdbMemory()
        descriptor, copies = find_descriptor(memory)
        if copies > 1:
            print(f"{copies} copies of HAKMEM are loaded; this is the one with most memory")
        shot = snapshot_by(memory, descriptor)
        if lost := blocks.without_records(shot):
            print(f"the records of {lost} SuperSlabs read as zeros, so their blocks are not known. gcore writes "
                  "zeros for a MiB that has inaccessible pages, as hardened processes have them; the kernel's cores are whole")
        return memory, descriptor, shot
    except LiveError as error:
        raise gdb.GdbError(f"hakmem: {error}") from error


def print_rows(headings: list[str], rows: Iterable[Iterable[object]]) -> None:
    """Prints a table: the first column aligned left, the others right."""
    lines = [headings, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for row in lines:
        cells = [cell.rjust(width) for cell, width in zip_strict(row, widths)]
        print("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())


def heap_text(shot: Snapshot, number: int) -> str:
    """Returns a heap as messages name it: `heap 3 (thread 1234 worker)`."""
    heap = next((heap for heap in shot.threads if heap.heap == number), None)
    if heap is None:
        return "a heap that is not known"
    if heap.tid:
        return f"heap {number} (thread {heap.tid}{' ' + heap.name if heap.name else ''})"
    return f"heap {number} ({heap.kind.replace('_', '-')}{', ' + heap.state if heap.kind == 'thread' else ''})"


def place_text(shot: Snapshot, place: blocks.Place) -> str:
    """Returns a Place in a sentence or two."""
    if place.kind == blocks.FOREIGN:
        return "not HAKMEM's: in no SuperSlab and no huge block"
    if place.kind in (blocks.OWN, blocks.RESERVED, blocks.UNIT):
        return {"own": "HAKMEM's own: ", "reserved": "no block: ", "unit": "no block: "}[place.kind] + place.text
    inside = f", {place.interior} bytes into it" if place.interior else ""
    if place.kind in (blocks.HUGE, blocks.RANGE):
        if place.kind == blocks.RANGE:
            return f"in {place.size} bytes at {place.start:#x} of freed huge blocks, kept for the next{inside}"
        owner = f", of {heap_text(shot, place.owner)}" if place.owner else ""
        return f"a live huge block of {place.size} bytes at {place.start:#x}{inside}{owner}"
    slab = f"slab {place.slab:#x} of {place.blocks} blocks, owned by {heap_text(shot, place.owner)}"
    if place.kind == blocks.REST:
        return f"no block: behind the last one of {slab}, class {place.class_id} of {place.size} bytes"
    where = f" in the thread cache of {heap_text(shot, place.cached_by)}" if place.kind == blocks.CACHED else ""
    words = {blocks.CACHED: "a free block", blocks.REMOTE: "a block freed by another thread and not collected yet",
             blocks.WITHHELD: "a block that nobody gets, as hardening withholds a slab's first one,"}
    return (f"{words.get(place.kind, f'a {place.kind} block')}{where} of {place.size} bytes at "
            f"{place.start:#x}{inside}: class "
            f"{place.class_id}, number {place.index} in {slab}")


class Hakmem(gdb.Command):
    """HAKMEM's heap: hakmem info, classes, heaps, block ADDRESS, walk SIZE."""

    def __init__(self) -> None:
        super().__init__("hakmem", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class Command(gdb.Command):
    """A command below `hakmem`, of the class's name."""

    completes = gdb.COMPLETE_NONE

    def __init__(self) -> None:
        super().__init__(f"hakmem {type(self).__name__.lower()}", gdb.COMMAND_DATA, self.completes)


class Info(Command):
    """Where the memory is: hakmem info"""

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Runs the command."""
        refuse_arguments("info", argument)
        _, _, shot = look()
        totals = shot.totals
        print(f"HAKMEM {shot.version} in {shot.command or 'the program'}: {totals.superslabs} SuperSlabs from "
              f"{shot.head[0]:#x} on, "
              f"{totals.heaps} live heaps")
        names = ("live", "cached", "free_in_slab", "retained", "metadata")
        rows = [[name.replace("_", " "), getattr(totals, name), bytes_column(getattr(totals, name))] for name in names]
        print_rows(["", "bytes", ""], [*rows, ["mapped", totals.mapped, bytes_column(totals.mapped)]])
        print(f"of live, {totals.huge_blocks} huge blocks of {bytes_column(totals.huge_live)}; "
              f"of retained, {bytes_column(totals.huge_cached)} of freed huge blocks")


class Classes(Command):
    """The size classes in use: hakmem classes"""

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Runs the command."""
        refuse_arguments("classes", argument)
        _, _, shot = look()
        print_rows(["class", "block", "slabs", "live", "cached", "free", "live bytes"],
                   [[row.class_id, row.block_size, row.slabs, row.live_blocks, row.cached_blocks, row.free_blocks,
                     row.live_bytes]
                    for row in shot.classes])


class Heaps(Command):
    """The heaps and the threads they serve: hakmem heaps"""

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Runs the command."""
        refuse_arguments("heaps", argument)
        _, _, shot = look()
        print_rows(["heap", "kind", "state", "thread", "slabs", "live bytes", "cached bytes", "warm", "pending", "at"],
                   [[heap.heap, heap.kind, heap.state, f"{heap.tid} {heap.name}".strip() if heap.tid else "",
                     heap.slabs,
                     heap.live_bytes, heap.cached_bytes, heap.warm_slabs, heap.pending_slabs, f"{heap.address:#x}"]
                    for heap in shot.threads])


class Block(Command):
    """What is at an address: hakmem block EXPRESSION"""

    completes = gdb.COMPLETE_EXPRESSION

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Runs the command."""
        if not argument.strip():
            raise gdb.GdbError("hakmem block ADDRESS: an address, or an expression that is one")
        try:
            address = int(gdb.parse_and_eval(argument).cast(gdb.lookup_type("long"))) & (1 << 64) - 1
        except gdb.error as error:
            raise gdb.GdbError(f"hakmem block {argument}: {error}") from error
        memory, descriptor, shot = look()
        try:
            place = blocks.locate(memory, descriptor, shot, address)
        except LiveError as error:
            raise gdb.GdbError(f"hakmem: {error}") from error
        print(f"{address:#x}: {place_text(shot, place)}")


class Walk(Command):
    """The live blocks of a size class: hakmem walk SIZE | class NUMBER | huge [-n COUNT]

SIZE is what a program asked for: the class that serves it is walked. COUNT lines are shown, 1000 if it is not said,
all with 0."""

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Runs the command."""
        words, most = take_count(gdb.string_to_argv(argument))
        huge = words == ["huge"]
        number = 0 if huge else walk_number(words)
        memory, descriptor, shot = look()
        class_id = 0 if huge else number if words[0] == "class" else blocks.class_of(shot, number)
        if words[0] == "class" and not 0 < class_id < len(shot.block_sizes):
            raise gdb.GdbError(f"hakmem walk: classes are 1 to {len(shot.block_sizes) - 1}")
        if class_id:
            heading, found = f"class {class_id} of {shot.block_sizes[class_id]} bytes", blocks.live_blocks(
                memory, descriptor, shot, class_id)
        else:
            heading, found = "huge blocks", ((block.address, block.heap or 0) for block in shot.huge if block.live)
        sizes = {block.address: block.bytes for block in shot.huge}
        count = 0
        try:
            for count, (address, owner) in enumerate(found, 1):
                if not most or count <= most:
                    size = f" {sizes[address]} bytes" if not class_id else ""
                    print(f"{address:#x}{size}" + (f" {heap_text(shot, owner)}" if owner else ""))
        except LiveError as error:
            raise gdb.GdbError(f"hakmem: {error}") from error
        hidden = f", {count - most} of them not shown (-n 0 shows all)" if most and count > most else ""
        print(f"{heading}: {count} live blocks{hidden}")


def refuse_arguments(name: str, argument: str) -> None:
    """Raises a GdbError if there are arguments."""
    if argument.strip():
        raise gdb.GdbError(f"hakmem {name} takes no arguments")


def take_count(words: list[str]) -> tuple[list[str], int]:
    """Returns the words without -n COUNT, and COUNT."""
    if "-n" not in words:
        return words, SHOWN_MOST
    at = words.index("-n")
    count = words[at + 1] if len(words) > at + 1 else ""
    if not count.isdigit():
        raise gdb.GdbError("hakmem walk: -n takes a number of lines")
    return words[:at] + words[at + 2:], int(count)


def walk_number(words: list[str]) -> int:
    """Returns the size or class number in the words; raises a GdbError if there is none."""
    number = words[1] if len(words) == 2 and words[0] == "class" else words[0] if len(words) == 1 else ""
    try:
        value = int(number, 0)
    except ValueError:
        value = -1
    if value < 0:
        raise gdb.GdbError("hakmem walk SIZE, hakmem walk class NUMBER, or hakmem walk huge; `hakmem classes` tells "
                           "what classes there are")
    return value


for command in (Hakmem, Info, Classes, Heaps, Block, Walk):
    command()
