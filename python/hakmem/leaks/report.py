"""The report on a process at its end: sites and the blocks they lost, most bytes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hakmem.heap.file import ProfileError
from hakmem.heap.labels import Labels, labels_of
from hakmem.heap.outside import Code, code_of, put_labels
from hakmem.heap.profile_pb2 import Profile
from hakmem.heap.stacks import Frame, frames_of, without_allocator
from hakmem.heap.symbolize import Strings, symbolize
from hakmem.leaks.memory import Blocks, Graph, Process
from hakmem.leaks.suppressions import Caller, Suppression
from hakmem.live.memory import sense
from hakmem.supervise import Ending, ending_text

if TYPE_CHECKING:
    from hakmem.leaks.memory import Mask

# {site's number: (frames, the same as suppressions see them)}
Stacks = dict[int, tuple[list[Frame], tuple[Caller, ...]]]
# (blocks, their bytes, bytes that the program asked for)
Amount = tuple[int, int, int]
TYPES = (("inuse_objects", "count"), ("inuse_space", "bytes"))


@dataclass
class Seen:
    """What was seen of a process while it was held. lost: a mask of its blocks."""

    pid: int
    status: int
    command: str
    version: str
    blocks: Blocks
    graph: Graph
    lost: Mask
    code: Code


@dataclass
class Site:
    """Where blocks were allocated, and under which labels. An Amount each. lost: nothing points to them;
    behind: lost blocks do. labels: ((key, value), ...)."""

    frames: list[Frame]
    lost: Amount
    behind: Amount
    reachable: Amount
    labels: Labels

    @property
    def order(self) -> tuple[int, int, int]:
        """The key to sort by: most lost bytes first."""
        return (-(self.lost[1] + self.behind[1]), -self.reachable[1], -(self.lost[0] + self.behind[0]))


@dataclass
class Report:
    """The report on one process."""

    pid: int
    status: int
    command: str
    sites: list[Site]
    lost: Amount
    behind: Amount
    reachable: Amount
    suppressed: list[Suppression]  # that were of use
    profile: Profile
    notes: list[str]

    @property
    def leaks(self) -> bool:
        """Whether anything is lost."""
        return self.lost[0] + self.behind[0] > 0

    @property
    def ending(self) -> str:
        """How the process ended, in words."""
        return ending_text(self.status)


def look(ending: Ending) -> Seen:
    """Returns what is Seen of a process that is held."""
    process = Process(ending)
    with sense(process.memory):
        blocks = process.blocks()
        graph = process.graph(blocks)
    return Seen(ending.pid, ending.status, process.memory.command(), process.descriptor.version, blocks, graph,
                ~graph.reach(graph.roots), code_of(process.memory))


def judge(seen: Seen, suppressions: Sequence[Suppression], debug_folders: Iterable[Path],
          with_reachable: bool) -> Report:
    """Returns the Report of what was seen. It looks up names after the process was let go to its end."""
    blocks, graph, lost = seen.blocks, seen.graph, seen.lost
    reachable = ~lost
    wanted = np.unique(blocks.site if with_reachable else blocks.site[lost])
    stacks, labels, profile, notes = name_stacks(seen, wanted.tolist(), debug_folders)
    known = {number: found for number, (_, callers) in stacks.items()
             for found in [next((one for one in suppressions if one.matches(callers)), None)] if found}
    if known:
        # Blocks that a known leak leads to count as known, too.
        after = graph.reach(np.flatnonzero(lost & np.isin(blocks.site, list(known))), reachable)
        count_known(seen, known, lost & after)
        lost = ~after
    heads = graph.heads(lost)
    first, behind, kept = (by_site(blocks, mask) for mask in (heads, lost & ~heads, reachable))
    sites = [Site(stacks[one][0], first[one], behind[one], kept[one], labels[one]) for one in wanted.tolist()]
    sites = sorted((site for site in sites if site.lost[0] + site.behind[0] or with_reachable and site.reachable[0]),
                   key=lambda site: site.order)
    fill(profile, blocks, lost)
    return Report(seen.pid, seen.status, seen.command, sites, total(blocks, heads), total(blocks, lost & ~heads),
                  total(blocks, reachable), [one for one in suppressions if one.blocks], profile, notes)


def total(blocks: Blocks, mask: Mask) -> Amount:
    """Returns the Amount of the blocks in the mask."""
    return int(mask.sum()), int(blocks.sizes[mask].sum()), int(blocks.asked[mask].sum())


def by_site(blocks: Blocks, mask: Mask) -> list[Amount]:
    """Returns the Amount of each site, for the blocks in the mask."""
    site, number = blocks.site[mask], len(blocks.sites)
    columns = (np.bincount(site, minlength=number), *(np.bincount(site, weights=values[mask], minlength=number)
                                                      for values in (blocks.sizes, blocks.asked)))
    return [(int(count), int(size), int(asked)) for count, size, asked in zip(*columns)]


def count_known(seen: Seen, known: dict[int, Suppression], mask: Mask) -> None:
    """Adds suppressed blocks to their suppressions; what known leaks lead to counts for the first one."""
    first = next(iter(known.values()))
    for number in np.unique(seen.blocks.site[mask]).tolist():
        here = mask & (seen.blocks.site == number)
        count, size, _ = total(seen.blocks, here)
        one = known.get(number, first)
        one.blocks += count
        one.bytes += size


def name_stacks(seen: Seen, numbers: Sequence[int],
                debug_folders: Iterable[Path]) -> tuple[Stacks, dict[int, Labels], Profile, list[str]]:
    """Returns ({site's number: (frames, Callers)}, {its number: its labels}, the Profile that they are in, notes)."""
    profile = Profile(period=1, string_table=[""])
    text = Strings(profile).place
    for name, unit in TYPES:
        profile.sample_type.add(type=text(name), unit=text(unit))
    profile.default_sample_type = text("inuse_space")
    profile.period_type.type, profile.period_type.unit = text("space"), text("bytes")
    profile.comment.append(text(f"hakmem {seen.version}, hakmem leaks: blocks that were lost at the end"))
    seen.code.put(profile, text)
    locations = set()
    for number in numbers:
        # The call's last byte. The return address is the next instruction, which may be in another line.
        addresses = [frame - 1 for frame in seen.blocks.sites[number].frames]
        for address in addresses:
            if address not in locations:
                locations.add(address)
                profile.location.add(id=address, address=address, mapping_id=seen.code.number(address))
        sample = profile.sample.add(location_id=addresses, value=[0, number])
        put_labels(sample, seen.blocks.sites[number].labels, text)
    labels = {number: labels_of(profile, sample) for number, sample in zip(numbers, profile.sample)}
    notes: list[str]
    try:
        notes = [*symbolize(profile, debug_folders)]
    except ProfileError as error:
        notes = [error.message]
    frames, names = frames_of(profile, False), linker_names(profile)
    found = {}
    for number, sample in zip(numbers, profile.sample):
        chain = [(frame, name) for location in sample.location_id
                 for frame, name in zip(frames[location], names[location])]
        kept = without_allocator([frame for frame, _ in chain])
        chain = chain[len(chain) - len(kept):]
        found[number] = kept, tuple(Caller(tuple(dict.fromkeys((frame.name, name))), frame.file, frame.line, path)
                                    for frame, (name, path) in chain)
    return found, labels, profile, notes


def linker_names(profile: Profile) -> dict[int, list[tuple[str, str]]]:
    """Returns {location: (linker's name, path of the module) of each of its frames}."""
    texts = profile.string_table
    functions = {function.id: texts[function.system_name] for function in profile.function}
    paths = {mapping.id: texts[mapping.filename] for mapping in profile.mapping}
    return {location.id: [(functions[line.function_id], paths.get(location.mapping_id, "")) for line in location.line]
            or [("", paths.get(location.mapping_id, ""))] for location in profile.location}


def fill(profile: Profile, blocks: Blocks, lost: Mask) -> None:
    """Fills the profile's samples with what each site lost, and removes samples of sites that lost nothing."""
    rows = by_site(blocks, lost)
    for sample in profile.sample:
        sample.value[:] = rows[sample.value[1]][:2]
    kept = [sample for sample in profile.sample if sample.value[0]]
    del profile.sample[:]
    profile.sample.extend(kept)
