"""A profile as stacks of named frames with values: added up over files, compared with a base, filtered."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hakmem.clean import clean
from hakmem.compat import zip_strict
from hakmem.heap.file import ProfileError, type_names
from hakmem.heap.interval import Variances, live_of, pairs_of, peak_of, variances
from hakmem.heap.labels import CALLS_FROM, LIVED_FROM, Labels, Wanted, labels_of, matches, place_of_size
from hakmem.heap.names import is_mangled, shortened
from hakmem.limits import TooLong, seconds_at_most

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Function as ProfileFunction
    from hakmem.heap.profile_pb2 import Profile, Sample

K = TypeVar("K")
V = TypeVar("V")

# A profile names the frames to drop by regular expressions. Python's matcher takes very long on some of them, so the
# time and the lengths of expressions and names are limited.
MATCH_SECONDS = 5
EXPRESSION_MOST, NAME_MOST = 10_000, 4096
# Files whose frames are cut off at the inner end of a stack: the allocator is no site.
ALLOCATOR = re.compile(r"libhakmem(-trace|-je|-tc)?\.so")
# The mapping of Python functions' frames, files that start programs and threads, and files that are the interpreter.
PYTHON = "[python]"
STARTING = re.compile(r"(libc|libpthread|ld-musl|ld-linux)[-.]")
INTERPRETER = re.compile(r"(lib)?python3(\.\d+)?[a-z]*(\.so.*)?$")
# Files of extension modules (PEP 3149), and of Python functions that carry out `import`.
EXTENSION = re.compile(r"\.(cpython-3\d+[\w-]*|abi3)\.so$")
IMPORTING = "<frozen importlib"


@dataclass(frozen=True)
class Frame:
    """A function in a stack. module: the name of its file, without folders. whole: its name before it was shortened."""

    name: str
    file: str
    line: int
    module: str
    whole: str = field(default="", compare=False)

    def place(self) -> str:
        """Returns where its code is, as far as known."""
        if not self.file:
            return self.module
        return f"{self.file}:{self.line}" if self.line else self.file

    def matches(self, expression: re.Pattern[str]) -> bool:
        """Returns whether an expression matches its name, file or module."""
        return any(expression.search(text) for text in (self.name, self.whole, self.file, self.module))


@dataclass(frozen=True)
class Stack:
    """frames: innermost first. values and base: a figure for each sample type; base is all 0 without --diff.
    lived_from: the least lifetime, in milliseconds, of what the sample counts; size: of its blocks; calls_from: the
    least number of allocations before their free; None if it does not say. labels: (key, value) of each label
    (labels.py)."""

    frames: tuple[Frame, ...]
    values: tuple[int, ...]
    base: tuple[int, ...]
    lived_from: int | None = None
    labels: Labels = ()
    size: int | None = None
    calls_from: int | None = None
    variances: Variances = ()  # of values and base together (interval.py); empty: all 0

    @property
    def changes(self) -> list[int]:
        """How much each figure changed against the base."""
        return [value - before for value, before in zip_strict(self.values, self.base)]


@dataclass
class Heap:
    """types: [(name, unit)]. period: mean number of bytes between samples; 0 if files differ or do not say."""

    types: list[tuple[str, str]]
    stacks: list[Stack]
    times: list[datetime]
    period: int
    comments: list[str]
    compared: bool = False
    live: int | None = None  # bytes in use, counted without samples
    peak: tuple[int, int] | None = None  # bytes in use at the peak, exactly and by samples, as far as known
    kept: tuple[int, float] | None = None  # what blocks keep (why.py): the sum, and the sum of the variances
    notes: list[str] = field(default_factory=list)

    def index(self, name: str) -> int:
        """Returns the place of a sample type; raises ProfileError if there is none of that name."""
        names = [kind for kind, _ in self.types]
        if name not in names:
            raise ProfileError(f"no such sample type: {name}; the profile has {', '.join(names)}")
        return names.index(name)

    def objects_of(self, index: int) -> int | None:
        """Returns the place of the figure that counts the objects of a figure of bytes; None if there is none."""
        names = [name for name, _ in self.types]
        objects = names[index].replace("_space", "_objects")
        return names.index(objects) if objects != names[index] and objects in names else None

    def total(self, index: int) -> int:
        """Returns the total of a figure, in a comparison the change."""
        return sum(stack.values[index] - stack.base[index] for stack in self.stacks)

    def measure(self, index: int) -> int:
        """Returns what shares are taken of: the total, or the base's total in a comparison."""
        return sum(stack.base[index] for stack in self.stacks) if self.compared else self.total(index)


def add_up(profiles: dict[K, Profile], whole_names: bool = False, interpreter: bool = False) -> Heap:
    """Returns one Heap of all the profiles {path: Profile}, whose sample types must be equal. whole_names: do not
    shorten names. interpreter: keep the interpreter's own frames."""
    (first_path, first), *_ = profiles.items()
    types = [(name, clean(first.string_table[kind.unit], NAME_MOST))
             for name, kind in zip_strict(type_names(first), first.sample_type)]
    heap = Heap(types, [], [], first.period, [])
    if len(profiles) == 1:
        heap.live, heap.peak = live_of(first), peak_of(first)
    for path, profile in profiles.items():
        if type_names(profile) != [name for name, _ in types]:
            raise ProfileError(f"{path}: its sample types ({', '.join(type_names(profile))}) are others than those of "
                               f"{first_path} ({', '.join(name for name, _ in types)})")
        if profile.period != heap.period:
            heap.notes.append(f"{path}: samples were taken at another rate than in {first_path}")
            heap.period = 0
        if profile.time_nanos:
            heap.times.append(datetime.fromtimestamp(profile.time_nanos / 1e9, timezone.utc))
        heap.comments += [text for place in profile.comment if (text := clean(profile.string_table[place]))]
        heap.stacks += stacks_of(profile, path, whole_names, interpreter)
    return heap


def compare(heap: Heap, base: Heap) -> Heap:
    """Returns the heap as changes against the base, in the sample types that both have: an older HAKMEM writes fewer.
    Stacks of the same names cancel out."""
    common = [kind for kind in heap.types if kind in base.types]
    if not common:
        raise ProfileError(f"the base's sample types ({', '.join(name for name, _ in base.types)}) are others than the "
                           f"profile's ({', '.join(name for name, _ in heap.types)})")
    only = {whose: [name for name, unit in each.types if (name, unit) not in common]
            for whose, each in (("the profile", heap), ("the base", base))}
    sized = {whose: any(stack.size is not None for stack in each.stacks)
             for whose, each in (("the profile", heap), ("the base", base))}
    both = all(sized.values())
    if any(sized.values()) and not both:
        only["the profile" if sized["the profile"] else "the base"].append("sizes of blocks")
    missing = [f"{', '.join(names)}, which only {whose} has" for whose, names in only.items() if names]
    notes = [*heap.notes, *base.notes, *([f"not compared: {'; '.join(missing)}"] if missing else [])]
    before = [replace(stack, values=stack.base, base=stack.values) for stack in stacks_in(base, common, both)]
    return replace(heap, types=common, stacks=[*stacks_in(heap, common, both), *before], compared=True, notes=notes)


def stacks_in(heap: Heap, types: Sequence[tuple[str, str]], sized: bool) -> list[Stack]:
    """Returns the stacks with figures for these sample types alone, and without sizes if they are not `sized`."""
    places = [heap.types.index(kind) for kind in types]
    if len(places) < len(heap.types):
        nothing = (0,) * len(places)
        taken = [(stack, at_places(stack.values, places)) for stack in heap.stacks]
        stacks = [replace(stack, values=values, base=nothing, variances=at_places(stack.variances, places))
                  for stack, values in taken if any(values)]
    else:
        stacks = [replace(stack, values=at_places(stack.values, places), variances=at_places(stack.variances, places))
                  for stack in heap.stacks]
    return stacks if sized else [replace(stack, size=None) for stack in stacks]


def at_places(values: tuple[V, ...], places: Sequence[int]) -> tuple[V, ...]:
    """Returns the values at the places; no values stay none."""
    return tuple(values[place] for place in places) if values else ()


def stacks_of(profile: Profile, path: object, whole_names: bool = False, interpreter: bool = False) -> Iterator[Stack]:
    """Yields the stacks of a profile."""
    frames = frames_of(profile, whole_names)
    drop, keep = (expression(profile.string_table[place], f"{path}: {name}") if place else None
                  for name, place in (("drop_frames", profile.drop_frames), ("keep_frames", profile.keep_frames)))
    dropped = matching(frames, drop, keep, path) if drop else set()
    nothing = (0,) * len(profile.sample_type)
    pairs = pairs_of(type_names(profile))
    for sample in profile.sample:
        chain = [frame for location in sample.location_id for frame in frames[location]]
        chain = without_allocator(prune(chain, dropped) if drop else chain)
        if not interpreter:
            chain = without_interpreter(chain)
        size = place_of_size(profile, sample)
        yield Stack(tuple(chain), tuple(sample.value), nothing, number_of(profile, sample, LIVED_FROM),
                    labels_of(profile, sample), sample.label[size].num if size is not None else None,
                    number_of(profile, sample, CALLS_FROM), variances(sample.value, pairs, profile.period))


def number_of(profile: Profile, sample: Sample, kind: tuple[str, str]) -> int | None:
    """Returns the number of a sample's label of a kind, (key, unit); None if it has none."""
    texts = profile.string_table
    return next((one.num for one in sample.label if (texts[one.key], texts[one.num_unit]) == kind), None)


def frames_of(profile: Profile, whole_names: bool) -> dict[int, list[Frame]]:
    """Returns {location: frames, innermost first}. A frame without a name gets its module and offset."""
    texts = [clean(text) for text in profile.string_table]
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    names = {
        number: shortened(whole_name(texts, function))
        if not whole_names and is_mangled(texts[function.system_name]) else whole_name(texts, function)
        for number, function in functions.items()
    }
    found = {}
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        module = PurePosixPath(texts[mapping.filename]).name if mapping else ""
        if location.line:
            found[location.id] = [
                Frame(names[function.id], texts[function.filename], line.line, module, whole_name(texts, function))
                for line in location.line for function in [functions[line.function_id]]]
        elif mapping and module:
            offset = location.address - mapping.memory_start + mapping.file_offset
            found[location.id] = [Frame(f"{module}+{offset:#x}", "", 0, module)]
        else:
            found[location.id] = [Frame(f"{location.address:#x}", "", 0, "")]
    return found


def whole_name(texts: Sequence[str], function: ProfileFunction) -> str:
    """Returns a function's name, or its linker's name."""
    return texts[function.name] or texts[function.system_name] or "?"


def matching(frames: dict[int, list[Frame]], drop: re.Pattern[str], keep: re.Pattern[str] | None,
             path: object) -> set[str]:
    """Returns the names that `drop` matches and `keep` does not."""
    names = {frame.whole or frame.name for chain in frames.values() for frame in chain}
    try:
        with seconds_at_most(MATCH_SECONDS):
            return {name for name in names for text in [re.sub(r"(?<!^)\(.*", "", name[:NAME_MOST])]
                    if drop.fullmatch(text) and not (keep and keep.fullmatch(text))}
    except (TooLong, RecursionError, MemoryError) as error:
        raise ProfileError(f"{path}: drop_frames or keep_frames takes more than {MATCH_SECONDS} seconds to match: "
                           f"{clean(drop.pattern, 100)}") from error


def prune(chain: list[Frame], dropped: Collection[str]) -> list[Frame]:
    """Cuts off the outermost dropped frame and everything it called. Dropped frames at the outer end do not count."""
    met = False
    for place in range(len(chain) - 1, -1, -1):
        if (chain[place].whole or chain[place].name) not in dropped:
            met = True
        elif met:
            return chain[place + 1:]
    return chain


def without_allocator(chain: list[Frame]) -> list[Frame]:
    """Cuts off the allocator's frames at the inner end."""
    inner = next((place for place, frame in enumerate(chain) if not ALLOCATOR.match(frame.module)), 0)
    return chain[inner:]


def without_interpreter(chain: list[Frame]) -> list[Frame]:
    """Removes the interpreter's frames from a stack that has Python functions: those of its own file (the file of
    the frame just outside of each run of Python functions), and those that -X perf makes for the same functions."""
    python = [place for place, frame in enumerate(chain) if frame.module == PYTHON]
    if not python:
        return chain
    known = {(chain[place].name, chain[place].file) for place in python}
    own = {chain[place + 1].module for place in python if place + 1 < len(chain)} - {PYTHON, "", "[anon]"}
    left = [frame for frame in chain if frame.module == PYTHON or not (
        frame.module in own or INTERPRETER.match(frame.module) or
        frame.module in ("", "[anon]") and (frame.name, frame.file) in known)]
    # The code that starts a program or a thread stands outside of the interpreter.
    while STARTING.match(left[-1].module):
        left.pop()
    return folded(left)


def folded(chain: list[Frame]) -> list[Frame]:
    """Removes what Python functions stand for: the frames of the extension modules that they call, and those of the
    import system that they enter."""
    callers = [place for place, frame in enumerate(chain)
               if frame.module == PYTHON and not frame.file.startswith(IMPORTING)]
    outermost = max(callers, default=0)
    return [frame for place, frame in enumerate(chain) if place >= outermost or not (
        EXTENSION.search(frame.module) or frame.module == PYTHON and frame.file.startswith(IMPORTING))]


def expression(text: str, what: str) -> re.Pattern[str]:
    """Returns the compiled regular expression; raises ProfileError if it is invalid."""
    if len(text) > EXPRESSION_MOST:
        raise ProfileError(f"{what}: a regular expression of {len(text):,} characters")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        raise ProfileError(f"{what}: not a regular expression: {clean(str(error), 100)}: {clean(text, 100)}") from error


class Expressions(NamedTuple):
    """The expressions by which stacks and frames are chosen."""

    focus: re.Pattern[str] | None
    ignore: re.Pattern[str] | None
    hide: re.Pattern[str] | None


def select(heap: Heap, expressions: Expressions, labels: Sequence[Wanted] = ()) -> Heap:
    """Returns the heap with only the stacks that have the labels, a frame that `focus` matches and none that
    `ignore` matches. Removes the frames that `hide` matches."""
    focus, ignore, hide = expressions
    stacks = []
    for stack in heap.stacks:
        if labels and not matches(stack.labels, labels):
            continue
        if focus and not any(frame.matches(focus) for frame in stack.frames):
            continue
        if ignore and any(frame.matches(ignore) for frame in stack.frames):
            continue
        if hide:
            stack = replace(stack, frames=tuple(frame for frame in stack.frames if not frame.matches(hide)))
        stacks.append(stack)
    return replace(heap, stacks=stacks)
