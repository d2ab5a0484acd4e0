"""Functions, files and lines of the addresses in reports, by the heap tools' symbolizer (hakmem/heap/symbolize.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.clean import clean
from hakmem.heap.profile_pb2 import Profile
from hakmem.heap.symbolize import Strings, symbolize

if TYPE_CHECKING:
    from hakmem.guard.file import Module, Report


@dataclass(frozen=True)
class Frame:
    """A function at an address, or only the address; several of one address where functions were inlined."""

    address: int
    function: str = ""
    file: str = ""
    line: int = 0
    module: str = ""
    offset: int = 0  # in the module's file


def name_frames(reports: Sequence[Report],
                debug_folders: Iterable[Path] = ()) -> tuple[list[dict[int, list[Frame]]], list[str]]:
    """Returns [{address: [Frame]}] of the reports, in their order, and sentences about what could not be done."""
    profile = Profile(string_table=[""])
    place = Strings(profile).place
    mappings: dict[Module, int] = {}
    locations: dict[tuple[int, int], int] = {}

    def mapping_of(module: Module) -> int:
        if module not in mappings:
            mappings[module] = len(mappings) + 1
            path = module.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            profile.mapping.add(id=mappings[module], memory_start=module.start, memory_limit=module.end,
                                file_offset=module.offset, filename=place(path), build_id=place(module.build_id))
        return mappings[module]

    found = []
    for report in reports:
        of_report: dict[int, tuple[Module | None, int | None]] = {}
        for address in {address for stack in report.stacks for address in stack.frames}:
            module = next((row for row in report.modules if row.start <= address < row.end), None)
            if module is None:
                of_report[address] = (None, None)
                continue
            key = (address, mapping_of(module))
            if key not in locations:
                locations[key] = len(locations) + 1
                profile.location.add(id=locations[key], mapping_id=key[1], address=address)
            of_report[address] = (module, locations[key])
        found.append(of_report)
    notes = symbolize(profile, debug_folders)
    made = [{address: frames_of(profile, address, *where) for address, where in of_report.items()}
            for of_report in found]
    return made, [clean(note) for note in notes]


def frames_of(profile: Profile, address: int, module: Module | None, location: int | None) -> list[Frame]:
    """Returns the Frames of an address."""
    if module is None or location is None:
        return [Frame(address)]
    functions = {function.id: function for function in profile.function}
    path, offset = clean(module.path), address - module.start + module.offset
    lines = profile.location[location - 1].line
    texts = profile.string_table
    return [Frame(address, clean(texts[functions[line.function_id].name]),
                  clean(texts[functions[line.function_id].filename]), line.line, path, offset)
            for line in lines] or [Frame(address, module=path, offset=offset)]
