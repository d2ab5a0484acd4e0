"""Makes the heap profile of a running process from outside: nothing runs in the process.

The profile is in pprof's format, as src/profile/pprof.c writes it, or in the text format."""

from __future__ import annotations

import gzip
import io
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from hakmem.clean import clean
from hakmem.compat import zip_strict
from hakmem.elf import build_id_in
from hakmem.foreign import Mapping
from hakmem.heap.interval import HALF, MORE, NONE, variances
from hakmem.heap.profile_pb2 import Profile
from hakmem.heap.symbolize import Strings, symbolize
from hakmem.live.memory import LiveError, MappedMemory, Unreadable
from hakmem.live.sites import PYTHON_MARK, Function, HeapSites, Label, Site, Size, python_frame, read_sites

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Sample
    from hakmem.live.descriptor import Descriptor

TYPES = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"),
         ("freed_objects", "count"), ("lifetime", "milliseconds"), ("peak_objects", "count"), ("peak_space", "bytes"),
         ("own_freed_objects", "count"))
# The number of TYPES that older HAKMEMs know: without the last, and without the peak.
WITHOUT_OWN, WITHOUT_PEAK = 8, 6
DROP_FRAMES = ("hak_.*|malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|pvalloc|"
               "operator new.*|_Zn[wa].*")
# A figure for each sample type.
Values = tuple[int, ...]
NOTHING: Values = (0,) * len(TYPES)
# What a sample of a site counts, as the label with this key, unit and number; None: no label.
Own = Optional[tuple[str, str, int]]
# How much of a file's first mapping is read for its notes.
IMAGE_MOST = 1 << 20
# Places in an ELF header: e_shoff; e_shentsize, e_shnum and e_shstrndx.
SECTIONS_AT, SECTIONS = slice(40, 48), slice(58, 64)


@dataclass
class Code:
    """All mappings, and the executable ones with the build-id of each. Both lists are sorted by address."""

    mappings: list[Mapping]
    executable: list[Mapping]
    build_ids: list[str]

    def __post_init__(self) -> None:
        self.starts = [mapping.start for mapping in self.executable]

    def number(self, address: int) -> int:
        """Returns the number of the executable mapping that holds the address, counted from 1; 0 if none does."""
        found = bisect_right(self.starts, address)
        return found if found and address < self.executable[found - 1].end else 0

    def put(self, profile: Profile, text: Callable[[str], int]) -> None:
        """Adds the executable mappings to a Profile. text(value): returns the place of a string."""
        for number, (mapping, build_id) in enumerate(zip_strict(self.executable, self.build_ids), 1):
            profile.mapping.add(id=number, memory_start=mapping.start, memory_limit=mapping.end,
                                file_offset=mapping.offset, filename=text(clean(mapping.path) or "[anon]"),
                                build_id=text(build_id))


@dataclass
class Look:
    """The state of a process at one moment."""

    version: str
    time_ns: int  # since 1970
    clock_ns: int  # monotonic
    heap: HeapSites
    code: Code
    pid: int = 0  # 0: of no process that runs
    live: int | None = None  # bytes of blocks in use, counted without samples; None: nobody looked


class Restarted(LiveError):
    """Between two looks, the profile was restarted or the program replaced."""


def look(memory: MappedMemory, descriptor: Descriptor) -> Look:
    """Returns a Look at the process behind `memory`."""
    heap = read_sites(memory, descriptor)
    settle_peak(heap)
    return Look(descriptor.version, time.time_ns(), time.monotonic_ns(), heap, code_of(memory),
                getattr(memory, "pid", 0) or 0)


def code_of(memory: MappedMemory) -> Code:
    """Returns the Code of a process."""
    mappings = memory.mappings()
    executable = [mapping for mapping in mappings if "x" in mapping.flags]
    firsts = {mapping.path: mapping for mapping in reversed(mappings) if mapping.offset == 0}
    found = {}
    for mapping in executable:
        if mapping.path not in found:
            found[mapping.path] = build_id_of(memory, mapping, firsts.get(mapping.path))
    return Code(mappings, executable, [found[mapping.path] for mapping in executable])


def build_id_of(memory: MappedMemory, mapping: Mapping, first: Mapping | None) -> str:
    """Returns the build-id of a mapped file, from the file or else from its first mapping."""
    file = memory.open_mapping(mapping) if mapping.inode else None
    if file is not None:
        with file:
            return build_id_in(file)
    if not mapping.path or first is None or "r" not in first.flags:
        return ""
    try:
        image = bytearray(memory.read(first.start, min(first.size, IMAGE_MOST)))
    except Unreadable:
        return ""
    image[SECTIONS_AT] = bytes(8)  # the table of sections is not in memory
    image[SECTIONS] = bytes(6)
    return build_id_in(io.BytesIO(image))


def settle_peak(heap: HeapSites) -> None:
    """Makes the sums at the peak add up to what was in use then, as settle_peak in src/profile/pprof.c."""
    if heap.peak_bytes is None:
        return
    most, sampled, least = heap.peak_bytes
    missing = min(max(sampled, least), most) - sampled
    whose = [size for site in heap.sites for size in site.sizes]
    spreads = [variances((one.peak[0] / heap.one, one.peak[1] / heap.one), ((0, 1),), heap.mean)[1] for one in whose]
    whole = sum(spreads)
    for one, spread in zip_strict(whose, spreads):
        if missing and spread:
            count, before = one.peak
            after = max(before + missing / whole * spread * heap.one, 0)  # in C's order, and cut off as there
            one.peak = int(count * (after / before)), int(after)
    for site in heap.sites if missing else ():
        site.peak = sum(size.peak[0] for size in site.sizes), sum(size.peak[1] for size in site.sizes)


# ---- As pprof's format ----


def whole(seen: Look, default_type: str = "inuse_space") -> Profile:
    """Returns the Profile of what is in use at a Look and of all allocations before it."""
    made = Making(seen, default_type)
    for site in seen.heap.sites:
        made.add(site.frames, values_of(seen.heap, site), site.labels)
    if seen.heap.peak_bytes and not seen.heap.peak_bytes[1]:
        made.add((), {None: (0, 0, 0, 0, 0, 0, 0, seen.heap.peak_bytes[2], 0)})
    return made.finished(seen.clock_ns - seen.heap.started_ns)


def difference(before: Look, after: Look, default_type: str = "inuse_space") -> Profile:
    """Returns the Profile of what changed between two Looks."""
    old, new = before.heap, after.heap
    if (old.generation, old.started_ns) != (new.generation, new.started_ns) or [
            (site.address, site.frames) for site in old.sites] != [
            (site.address, site.frames) for site in new.sites[:len(old.sites)]]:
        raise Restarted("while the difference was waited for, the heap profile was started or stopped, or the program "
                        "became another")
    made = Making(after, default_type)
    for number, site in enumerate(new.sites):
        values = values_of(new, site)
        if number < len(old.sites):
            earlier = values_of(old, old.sites[number])
            values = {key: minus(values.get(key, NOTHING), earlier.get(key, NOTHING))
                      for key in dict.fromkeys((*values, *earlier))}
        made.add(site.frames, values, site.labels)
    return made.finished(after.clock_ns - before.clock_ns)


def minus(values: Values, less: Values) -> Values:
    """Returns the values, each less the other's."""
    return tuple(value - other for value, other in zip_strict(values, less))


def rounded(heap: HeapSites, pair: tuple[int, int]) -> tuple[int, int]:
    """Returns a pair of sums as whole numbers."""
    count, size = pair
    return (count + heap.one // 2) // heap.one, (size + heap.one // 2) // heap.one


def sums_of(heap: HeapSites, whose: Site | Size) -> Values:
    """Returns a value for each of TYPES, without lifetimes."""
    return (*rounded(heap, whose.allocated), *rounded(heap, whose.in_use), 0, 0, *rounded(heap, whose.peak), 0)


def values_of(heap: HeapSites, site: Site) -> dict[Own, Values]:
    """Returns {what is counted: a value for each of TYPES}, without entries that are all 0: for each size what was
    allocated, for each bucket of lifetimes and of allocations what was freed."""
    found: dict[Own, Values] = {("bytes", "bytes", size.size) if size.size else None: sums_of(heap, size)
                                for size in site.sizes} or {None: sums_of(heap, site)}
    for bucket, ended in enumerate(site.lifetimes):
        found["lifetime_from", "milliseconds", bucket_begin(bucket)] = (0, 0, 0, 0, *rounded(heap, ended), 0, 0, 0)
    for bucket, weight in enumerate(site.own_freed):
        count, _ = rounded(heap, (weight, 0))
        found["allocations_from", "count", bucket_begin(bucket)] = (0, 0, 0, 0, 0, 0, 0, 0, count)
    return {key: values for key, values in found.items() if any(values[place] for place in (0, 2, 4, 6, 8))}


def bucket_begin(bucket: int) -> int:
    """Returns the least number in a bucket: bucket 0 begins at 0, and each other one at a power of two."""
    return 1 << (bucket - 1) if bucket else 0


def put_labels(sample: Sample, labels: Iterable[Label], text: Callable[[str], int]) -> None:
    """Adds the labels of a site to a sample. text(value): returns the place of a string."""
    for one in labels:
        if one.number is None:
            sample.label.add(key=text(one.key), str=text(one.text))
        else:
            sample.label.add(key=text(one.key), num=one.number, num_unit=text(one.text))


class Making:
    """Makes a Profile from a Look. types: (name, unit) of each sample type, by default the library's."""

    def __init__(self, seen: Look, default_type: str, types: Sequence[tuple[str, str]] | None = None) -> None:
        self.seen = seen
        known = WITHOUT_PEAK if seen.heap.peak_ms is None else len(TYPES) if seen.heap.knows_own else WITHOUT_OWN
        self.types = types or TYPES[:known]
        self.texts = {"": 0}
        self.known: set[int] = set()
        self.profile = profile = Profile(
            period=seen.heap.mean, time_nanos=seen.time_ns, drop_frames=self.text(DROP_FRAMES),
            default_sample_type=self.text(default_type))
        for name, unit in self.types:
            profile.sample_type.add(type=self.text(name), unit=self.text(unit))
        profile.period_type.type, profile.period_type.unit = self.text("space"), self.text("bytes")
        by = "unwind tables" if seen.heap.by_tables else "frame pointers"
        profile.comment.extend([
            self.text(f"hakmem {seen.version}"),
            self.text(f"samples are {seen.heap.mean} bytes apart in the mean (HAKMEM_HEAP_PROFILE_RATE); "
                      f"stacks by {by}")])
        if seen.pid:
            profile.comment.append(self.text(f"process {seen.pid}"))
        if seen.heap.peak_ms:
            after = max(seen.heap.peak_ms - seen.heap.started_ns // 1_000_000, 0)
            exact = "" if seen.heap.peak_bytes is None else (
                f", {seen.heap.peak_bytes[0]} bytes, {int(seen.heap.peak_bytes[1] + 0.5)} by samples")
            profile.comment.append(self.text(f"peak of what is in use: {after} ms after the start{exact}"))
        if seen.live is not None:
            profile.comment.append(self.text(f"in use, counted without samples: {seen.live} bytes"))
        seen.code.put(profile, self.text)
        self.functions = self.put_functions(len(seen.code.executable) + 1)

    def put_functions(self, number: int) -> dict[int, Function]:
        """Adds the Python functions, if any, and their mapping of this number, as src/profile/pprof.c does."""
        functions = self.seen.heap.functions
        if functions:
            self.profile.mapping.add(
                id=number, memory_start=PYTHON_MARK, memory_limit=(1 << 64) - 1, filename=self.text("[python]"),
                has_functions=True, has_filenames=True, has_line_numbers=True)
        for identity, function in functions.items():
            name = self.text(function.name)
            self.profile.function.add(id=identity, name=name, system_name=name, filename=self.text(function.file),
                                      start_line=min(function.first_line, (1 << 31) - 1))
        return functions

    def text(self, value: str) -> int:
        """Returns the place of a string in the string table."""
        return self.texts.setdefault(value, len(self.texts))

    def add(self, frames: tuple[int, ...], values: dict[Own, Values], labels: Iterable[Label] = ()) -> None:
        """Adds the samples of a site, as values_of() returns them, all with the labels."""
        if not any(any(value) for value in values.values()):
            return
        # A location is the call's last byte. The return address is the next instruction, which may be in another line.
        stack = [frame if frame & PYTHON_MARK else frame - 1 for frame in self.sound(frames)]
        for address in stack:
            if address in self.known:
                continue
            self.known.add(address)
            if address & PYTHON_MARK:
                identity, line = python_frame(address)
                location = self.profile.location.add(
                    id=address, address=address, mapping_id=len(self.seen.code.executable) + 1 if self.functions else 0)
                if identity in self.functions:
                    location.line.add(function_id=identity, line=line)
            else:
                self.profile.location.add(id=address, address=address, mapping_id=self.seen.code.number(address))
        for own, value in values.items():
            if any(value):
                sample = self.profile.sample.add(location_id=stack, value=value[:len(self.types)])
                put_labels(sample, labels, self.text)
                if own is not None:
                    key, unit, number = own
                    sample.label.add(key=self.text(key), num=number, num_unit=self.text(unit))

    def sound(self, frames: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the frames up to the first that is no code. A walk by frame pointers ends in such frames if it
        passes code without frame pointers."""
        if self.seen.heap.by_tables:
            return frames
        number = self.seen.code.number
        return frames[:next((place for place, frame in enumerate(frames)
                             if not frame & PYTHON_MARK and not number(frame - 1)), len(frames))]

    def finished(self, duration_ns: int) -> Profile:
        """Returns the Profile."""
        if self.types[:4] == TYPES[:4] and any(site.sizes for site in self.seen.heap.sites):
            self.profile.comment.append(self.text(self.totals()))
        self.profile.duration_nanos = max(duration_ns, 0)
        self.profile.string_table.extend(self.texts)
        return self.profile


    def totals(self) -> str:
        """Returns the comment on the totals, as write_totals in src/profile/pprof.c."""
        return "; ".join(f"{name}: {size} bytes +-{half}" for name, (size, half) in totals_of(self.seen.heap).items())


def totals_of(heap: HeapSites) -> dict[str, tuple[int, int]]:
    """Returns the bytes in use and all that were allocated, by samples, each with the half of its interval."""
    sizes = [size for site in heap.sites for size in site.sizes]
    rows, found = (("in use", [size.in_use for size in sizes]), ("allocated", [size.allocated for size in sizes])), {}
    for name, sums in rows:
        count, size = (sum(own[place] for own in sums) / heap.one for place in (0, 1))
        variance = sum(own * own / number * spare_of(heap, own / number) for number, own in sums if number)
        variance /= heap.one
        spare = spare_of(heap, size / count) if count else 0
        half = HALF * math.sqrt(variance + MORE * (size / count)**2 * (1 + spare) * spare) if count else (
            NONE * heap.mean if heap.mean > 1 else 0)
        found[name] = rounded(heap, (0, sum(own for _, own in sums)))[1], int(half)
    return found


def spare_of(heap: HeapSites, size: float) -> float:
    """Returns the calls that a sample of the size stands for, besides itself, as draw_weight in src/profile/draw.c
    rounds them."""
    part = int(size) / heap.mean
    return 0 if part > 64 or heap.mean == 1 else int(heap.one / -math.expm1(-part) + 0.5) / heap.one - 1


def packed(profile: Profile) -> bytes:
    """Returns the profile's bytes as a file has them."""
    return gzip.compress(profile.SerializeToString(), compresslevel=1, mtime=0)


# ---- As text ----


def as_text(seen: Look) -> str:
    """Returns a Look in pprof's older text format. Each site has blocks and bytes in use and, in brackets,
    allocated. The mappings follow."""
    rows, total = [], NOTHING
    for site in seen.heap.sites:
        values = sums_of(seen.heap, site)
        total = tuple(one + other for one, other in zip_strict(total, values))
        if any(values):
            rows.append((values, site))
    rows.sort(key=lambda row: (-row[0][3], -row[0][1]))
    lines = [f"heap profile: {counts(total)} @ heapprofile"]
    lines += [f"{counts(values)} @ "
              f"{' '.join(f'{frame:#x}' for frame in site.frames if not frame & PYTHON_MARK)}" for values, site in rows]
    lines += ["", f"# hakmem {seen.version}, samples {seen.heap.mean} bytes apart in the mean"
              f"{'' if seen.heap.on else '; no more are taken'}", "",
              "MAPPED_LIBRARIES:"]
    lines += [
        f"{one.start:x}-{one.end:x} {one.flags} {one.offset:08x} {one.device} {one.inode} {clean(one.path)}".rstrip()
        for one in seen.code.mappings
    ]
    return "\n".join(lines) + "\n"


def counts(values: Values) -> str:
    """Returns the figures of one line of the text format."""
    return f"{values[2]}: {values[3]} [{values[0]}: {values[1]}]"


# ---- Names ----


def symbols_of(memory: MappedMemory, addresses: Iterable[int]) -> dict[int, str]:
    """Returns {address: the linker's name of the function there} for addresses that have one."""
    profile, code = Profile(string_table=[""]), code_of(memory)
    code.put(profile, Strings(profile).place)
    for address in dict.fromkeys(addresses):
        if number := code.number(address):
            profile.location.add(id=address, address=address, mapping_id=number)
    symbolize(profile)
    names = {function.id: profile.string_table[function.system_name] for function in profile.function}
    # The outermost of the inlined functions is the one that owns the code.
    return {location.address: names[location.line[-1].function_id] for location in profile.location if location.line}
