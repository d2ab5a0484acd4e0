"""The heap profile of a running process, made from outside: nothing runs in it.

In pprof's format, as src/profile/pprof.c writes it, or as text.
"""

import gzip
import io
import time
from bisect import bisect_right
from dataclasses import dataclass

from hakmem.heap.elf import build_id_in
from hakmem.heap.profile_pb2 import Profile
from hakmem.heap.symbolize import symbolize
from hakmem.live.memory import LiveError, Mapping, Unreadable
from hakmem.live.sites import HeapSites, read_sites

TYPES = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"),
         ("freed_objects", "count"), ("lifetime", "milliseconds"))
DROP_FRAMES = ("hak_.*|malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|pvalloc|"
               "operator new.*|_Zn[wa].*")
NOTHING = (0,) * len(TYPES)
OF_SITE = -1
# A file's first mapping is read no further than this for its notes.
IMAGE_MOST = 1 << 20
# In an ELF file's head: e_shoff; e_shentsize, e_shnum and e_shstrndx.
SECTIONS_AT, SECTIONS = slice(40, 48), slice(58, 64)


@dataclass
class Code:
    """What is mapped: all of it, and what is executable with the build-id of each; both by address."""

    mappings: list[Mapping]
    executable: list[Mapping]
    build_ids: list[str]

    def __post_init__(self):
        self.starts = [mapping.start for mapping in self.executable]

    def number(self, address):
        """Which of the executable mappings an address lies in, from 1; 0: in none."""
        found = bisect_right(self.starts, address)
        return found if found and address < self.executable[found - 1].end else 0

    def put(self, profile, text):
        """Adds the executable mappings to a Profile; text(value): the place of a string."""
        for number, (mapping, build_id) in enumerate(zip(self.executable, self.build_ids, strict=True), 1):
            profile.mapping.add(id=number, memory_start=mapping.start, memory_limit=mapping.end,
                                file_offset=mapping.offset, filename=text(mapping.path or "[anon]"),
                                build_id=text(build_id))


@dataclass
class Look:
    """What was seen of a process at one moment."""

    version: str
    time_ns: int  # since 1970
    clock_ns: int  # monotonic
    heap: HeapSites
    code: Code


class Restarted(LiveError):
    """Between two looks the profile, or the program, became another."""


def look(memory, descriptor):
    """A Look at the process behind `memory`."""
    heap = read_sites(memory, descriptor)
    return Look(descriptor.version, time.time_ns(), time.monotonic_ns(), heap, code_of(memory))


def code_of(memory):
    mappings = memory.mappings()
    executable = [mapping for mapping in mappings if "x" in mapping.flags]
    firsts = {mapping.path: mapping for mapping in reversed(mappings) if mapping.offset == 0}
    found = {}
    for mapping in executable:
        if mapping.path not in found:
            found[mapping.path] = build_id_of(memory, mapping, firsts.get(mapping.path))
    return Code(mappings, executable, [found[mapping.path] for mapping in executable])


def build_id_of(memory, mapping, first):
    """The build-id of what is mapped: out of its file, or where that is not to be had out of its first memory."""
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


# ---- As pprof's format ----


def whole(seen, default_type="inuse_space"):
    """The Profile of what is in use and was allocated up to a Look."""
    made = Making(seen, default_type)
    for site in seen.heap.sites:
        made.add(site.frames, values_of(seen.heap, site))
    return made.finished(seen.clock_ns - seen.heap.started_ns)


def difference(before, after, default_type="inuse_space"):
    """The Profile of what changed from one Look to another."""
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
                      for key in sorted(values.keys() | earlier.keys())}
        made.add(site.frames, values)
    return made.finished(after.clock_ns - before.clock_ns)


def minus(values, less):
    return tuple(value - other for value, other in zip(values, less, strict=True))


def values_of(heap, site):
    """{OF_SITE, or a bucket of lifetimes: a value for each of TYPES}, without those that are nothing."""
    def rounded(pair):
        return tuple((part + heap.one // 2) // heap.one for part in pair)
    found = {OF_SITE: (*rounded(site.allocated), *rounded(site.in_use), 0, 0)}
    for bucket, ended in enumerate(site.lifetimes):
        found[bucket] = (0, 0, 0, 0, *rounded(ended))
    return {key: values for key, values in found.items() if values[0] or values[2] or values[4]}


class Making:
    """A Profile that is made of a Look."""

    def __init__(self, seen, default_type):
        self.seen = seen
        self.texts, self.known = {"": 0}, set()
        self.profile = profile = Profile(
            period=seen.heap.mean, time_nanos=seen.time_ns, drop_frames=self.text(DROP_FRAMES),
            default_sample_type=self.text(default_type))
        for name, unit in TYPES:
            profile.sample_type.add(type=self.text(name), unit=self.text(unit))
        profile.period_type.type, profile.period_type.unit = self.text("space"), self.text("bytes")
        by = "unwind tables" if seen.heap.by_tables else "frame pointers"
        profile.comment.extend([
            self.text(f"hakmem {seen.version}"),
            self.text(f"samples are {seen.heap.mean} bytes apart in the mean (HAKMEM_HEAP_PROFILE_RATE); "
                      f"stacks by {by}")])
        seen.code.put(profile, self.text)

    def text(self, value):
        return self.texts.setdefault(value, len(self.texts))

    def add(self, frames, values):
        """Samples of a site: one of itself, one for each bucket."""
        if not any(any(value) for value in values.values()):
            return
        # The call's last byte is its location: the next instruction, where it returns, may be in another line.
        stack = [frame - 1 for frame in self.sound(frames)]
        for address in stack:
            if address not in self.known:
                self.known.add(address)
                self.profile.location.add(id=address, address=address, mapping_id=self.seen.code.number(address))
        for bucket, value in values.items():
            if any(value):
                sample = self.profile.sample.add(location_id=stack, value=value)
                if bucket != OF_SITE:
                    sample.label.add(key=self.text("lifetime_from"), num=1 << (bucket - 1) if bucket else 0,
                                     num_unit=self.text("milliseconds"))

    def sound(self, frames):
        """By frame pointers, a walk that came through code without them ends in what is no code."""
        if self.seen.heap.by_tables:
            return frames
        number = self.seen.code.number
        return frames[:next((place for place, frame in enumerate(frames) if not number(frame - 1)), len(frames))]

    def finished(self, duration_ns):
        self.profile.duration_nanos = max(duration_ns, 0)
        self.profile.string_table.extend(self.texts)
        return self.profile


def packed(profile):
    """As a file has it."""
    return gzip.compress(profile.SerializeToString(), compresslevel=1, mtime=0)


# ---- As text ----


def as_text(seen):
    """A Look as the older text format that pprof reads, too: for each site blocks and bytes in use and, in brackets,
    allocated; then the mappings."""
    rows, total = [], NOTHING
    for site in seen.heap.sites:
        values = values_of(seen.heap, site).get(OF_SITE, NOTHING)
        total = tuple(one + other for one, other in zip(total, values, strict=True))
        if any(values):
            rows.append((values, site))
    rows.sort(key=lambda row: (-row[0][3], -row[0][1]))
    lines = [f"heap profile: {counts(total)} @ heapprofile"]
    lines += [f"{counts(values)} @ {' '.join(f'{frame:#x}' for frame in site.frames)}" for values, site in rows]
    lines += ["", f"# hakmem {seen.version}, samples {seen.heap.mean} bytes apart in the mean"
              f"{'' if seen.heap.on else '; no more are taken'}", "",
              "MAPPED_LIBRARIES:"]
    lines += [f"{one.start:x}-{one.end:x} {one.flags} {one.offset:08x} {one.device} {one.inode} {one.path}".rstrip()
              for one in seen.code.mappings]
    return "\n".join(lines) + "\n"


def counts(values):
    return f"{values[2]}: {values[3]} [{values[0]}: {values[1]}]"


# ---- Names ----


def symbols_of(memory, addresses):
    """{address: the name of the function there, as the linker has it} of those that have one."""
    profile, texts, code = Profile(), {"": 0}, code_of(memory)
    code.put(profile, lambda value: texts.setdefault(value, len(texts)))
    profile.string_table.extend(texts)
    for address in dict.fromkeys(addresses):
        if number := code.number(address):
            profile.location.add(id=address, address=address, mapping_id=number)
    symbolize(profile)
    names = {function.id: profile.string_table[function.system_name] for function in profile.function}
    # The outermost of what was inlined there is the function whose code it is.
    return {location.address: names[location.line[-1].function_id] for location in profile.location if location.line}
