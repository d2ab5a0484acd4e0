"""Reads which freed blocks wait for a sweep (HAKMEM_SWEEP; src/harden/sweep_map.h has their bits)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hakmem.compat import zip_strict

if TYPE_CHECKING:
    from hakmem.live.descriptor import Descriptor
    from hakmem.live.memory import Memory

NEEDED = ("sweep_leaf.slots", "sweep_slot.firsts", "sweep_slot.waiting")
POINTER = 8


def waiting_bits(memory: Memory, descriptor: Descriptor, numbers: Sequence[int],
                 is_sound: Callable[[int], bool]) -> dict[tuple[int, int], int]:
    """Returns {(number of a SuperSlab's slot, first unit of a slab): the slab's waiting blocks as bits}.

    numbers: of the slots to look at. is_sound(address): whether HAKMEM may have put a table there. A HAKMEM that does
    not tell where its tables are has none."""
    fields = descriptor.fields
    if "sweep_leaves" not in descriptor.roots or any(name not in fields for name in NEEDED):
        return {}
    slots, firsts, waiting = (fields[name] for name in NEEDED)
    rows = [number for number in numbers if number // slots.count < descriptor.constants.get("SWEEP_LEAVES", 0)]
    leaves = sorted({number // slots.count for number in rows})
    root = descriptor.roots["sweep_leaves"]
    leaf_at = pointed(memory, [(number, root + number * POINTER) for number in leaves], is_sound)
    slot_at = pointed(memory, [(number, leaf_at[number // slots.count] + slots.offset + number % slots.count * POINTER)
                               for number in rows if number // slots.count in leaf_at], is_sound)
    masks = memory.read_many([(address + firsts.offset, firsts.size) for address in slot_at.values()])
    wanted = [(number, first, address + waiting.offset + first * waiting.size)
              for (number, address), mask in zip_strict(slot_at.items(), masks)
              for first in range(min(waiting.count, firsts.size * 8)) if int.from_bytes(mask, "little") >> first & 1]
    found = memory.read_many([(address, waiting.size) for _, _, address in wanted])
    return {(number, first): int.from_bytes(data, "little")
            for (number, first, _), data in zip_strict(wanted, found)}


def pointed(memory: Memory, places: Sequence[tuple[int, int]], is_sound: Callable[[int], bool]) -> dict[int, int]:
    """Returns {key: the address that the word at the place holds}, of (key, place), for sound addresses."""
    found = memory.read_many([(place, POINTER) for _, place in places])
    return {key: address for (key, _), data in zip_strict(places, found)
            if is_sound(address := int.from_bytes(data, "little"))}
