"""A profile as stacks of named frames with values: added up over files, against a base, filtered."""

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from hakmem.heap.file import ProfileError, type_names

# What is left out at the inner end of a stack: the allocator's own frames are no site.
ALLOCATOR = re.compile(r"libhakmem(-trace)?\.so")


@dataclass(frozen=True)
class Frame:
    """A function in a stack; module is the name of the file that it lies in, without folders."""

    name: str
    file: str
    line: int
    module: str

    def place(self):
        """Where its code is, as far as is known."""
        if not self.file:
            return self.module
        return f"{self.file}:{self.line}" if self.line else self.file

    def matches(self, expression):
        return any(expression.search(text) for text in (self.name, self.file, self.module))


@dataclass(frozen=True)
class Stack:
    """frames: innermost first; values and base: a figure for each sample type, base all 0 without --diff.

    lived_from: the least that what the sample counts has lived, in milliseconds; None where it does not say."""

    frames: tuple
    values: tuple
    base: tuple
    lived_from: int | None = None


@dataclass
class Heap:
    """types: [(name, unit)]; period: bytes between samples on average, 0 where files differ or don't say."""

    types: list
    stacks: list
    times: list
    period: int
    comments: list
    compared: bool = False
    notes: list = field(default_factory=list)

    def index(self, name):
        """The place of a sample type; a ProfileError when there is none of that name."""
        names = [kind for kind, _ in self.types]
        if name not in names:
            raise ProfileError(f"no such sample type: {name}; the profile has {', '.join(names)}")
        return names.index(name)

    def total(self, index):
        return sum(stack.values[index] - stack.base[index] for stack in self.stacks)

    def measure(self, index):
        """What shares are of: the total, and in a comparison the base's."""
        return sum(stack.base[index] for stack in self.stacks) if self.compared else self.total(index)


def add_up(profiles):
    """One Heap of all the profiles {path: Profile}, whose sample types must be the same."""
    (first_path, first), *_ = profiles.items()
    types = [(name, first.string_table[kind.unit])
             for name, kind in zip(type_names(first), first.sample_type, strict=True)]
    heap = Heap(types, [], [], first.period, [])
    for path, profile in profiles.items():
        if type_names(profile) != [name for name, _ in types]:
            raise ProfileError(f"{path}: its sample types ({', '.join(type_names(profile))}) are others than those of "
                               f"{first_path} ({', '.join(name for name, _ in types)})")
        if profile.period != heap.period:
            heap.notes.append(f"{path}: samples were taken at another rate than in {first_path}")
            heap.period = 0
        if profile.time_nanos:
            heap.times.append(datetime.fromtimestamp(profile.time_nanos / 1e9, UTC))
        heap.comments += [text for place in profile.comment if (text := profile.string_table[place])]
        heap.stacks += stacks_of(profile, path)
    return heap


def compare(heap, base):
    """What the heap has more and less than the base, stack by stack of the same names."""
    if [name for name, _ in heap.types] != [name for name, _ in base.types]:
        raise ProfileError(f"the base's sample types ({', '.join(name for name, _ in base.types)}) are others than the "
                           f"profile's ({', '.join(name for name, _ in heap.types)})")
    before = [replace(stack, values=stack.base, base=stack.values) for stack in base.stacks]
    return replace(heap, stacks=heap.stacks + before, compared=True, notes=heap.notes + base.notes)


def stacks_of(profile, path):
    frames = frames_of(profile)
    drop, keep = (expression(profile.string_table[place], f"{path}: {name}") if place else None
                  for name, place in (("drop_frames", profile.drop_frames), ("keep_frames", profile.keep_frames)))
    nothing = (0,) * len(profile.sample_type)
    for sample in profile.sample:
        chain = [frame for location in sample.location_id for frame in frames[location]]
        chain = without_allocator(prune(chain, drop, keep) if drop else chain)
        yield Stack(tuple(chain), tuple(sample.value), nothing, lived_from(profile, sample))


def lived_from(profile, sample):
    texts = profile.string_table
    return next((one.num for one in sample.label
                 if (texts[one.key], texts[one.num_unit]) == ("lifetime_from", "milliseconds")), None)


def frames_of(profile):
    """{location: its frames, innermost first}; one without a name is called by module and offset in its file."""
    texts = profile.string_table
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    found = {}
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        module = PurePosixPath(texts[mapping.filename]).name if mapping else ""
        if location.line:
            found[location.id] = [
                Frame(texts[function.name] or texts[function.system_name] or "?", texts[function.filename], line.line,
                      module)
                for line in location.line for function in [functions[line.function_id]]]
        elif module:
            offset = location.address - mapping.memory_start + mapping.file_offset
            found[location.id] = [Frame(f"{module}+{offset:#x}", "", 0, module)]
        else:
            found[location.id] = [Frame(f"{location.address:#x}", "", 0, "")]
    return found


def prune(chain, drop, keep):
    """Without the outermost frame that drop matches and what it called, once a frame that it does not has been met."""
    met = False
    for place in range(len(chain) - 1, -1, -1):
        name = re.sub(r"(?<!^)\(.*", "", chain[place].name)
        if not drop.fullmatch(name) or (keep and keep.fullmatch(name)):
            met = True
        elif met:
            return chain[place + 1:]
    return chain


def without_allocator(chain):
    inner = next((place for place, frame in enumerate(chain) if not ALLOCATOR.match(frame.module)), 0)
    return chain[inner:]


def expression(text, what):
    try:
        return re.compile(text)
    except re.error as error:
        raise ProfileError(f"{what}: not a regular expression: {error}: {text}") from error


def select(heap, focus, ignore, hide):
    """The stacks with a frame that focus matches and none that ignore does, without the frames that hide does."""
    stacks = []
    for stack in heap.stacks:
        if focus and not any(frame.matches(focus) for frame in stack.frames):
            continue
        if ignore and any(frame.matches(ignore) for frame in stack.frames):
            continue
        if hide:
            stack = replace(stack, frames=tuple(frame for frame in stack.frames if not frame.matches(hide)))
        stacks.append(stack)
    return replace(heap, stacks=stacks)
