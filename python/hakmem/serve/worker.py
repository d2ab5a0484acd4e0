"""Looks at one process for `hakmem serve`, in a process of its own.

The owner of a process decides how long a look at it takes and what it costs: a page that never comes (FUSE,
userfaultfd) blocks the reader in the kernel for as long as the owner likes. So everything that touches the process
happens in a worker with limited memory, and the server ends a worker that is late. Questions come as lines of JSON
on standard input. An answer is a letter, eight bytes of length, and that many bytes. The letter is J for JSON, B for
bytes, E for an error as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Union

from hakmem.apart import bound
from hakmem.heap.file import ProfileError, parse_profile
from hakmem.heap.outside import Look, as_text, difference, look, packed, symbols_of, whole
from hakmem.heap.sites import Node, sites_of, tree_of
from hakmem.heap.sizes import rows_of, sizes_of
from hakmem.heap.source import Process
from hakmem.heap.stacks import Heap, add_up
from hakmem.heap.symbolize import Strings, symbolize
from hakmem.heap.temporary import HEADS, ranked, temporary_of
from hakmem.live.control import Control, Unanswered, start_profile, stop_profile
from hakmem.live.descriptor import Descriptor, find
from hakmem.live.heap import as_dict
from hakmem.live.map import map_page
from hakmem.live.memory import UNSOUND, LiveError, NoPermission, NoProcess, problem_text, start_time
from hakmem.live.sample import Sample, Sampler
from hakmem.live.sites import ProfileOff, read_sites
from hakmem.serve.survey import Survey

# Limit of a worker's address space. A small heap takes 40 MiB.
SPACE_MOST = 8 << 30
# Limits of the tree that the page draws: nodes, the least share of a node, depth.
NODES_MOST, LEAST_SHARE, DEPTH_MOST = 4000, 0.002, 128
# Sites of /api/why and of /api/flame's tables.
SITES_MOST = 200


# JSON values, or bytes.
Answer = Union[dict[str, object], bytes]


class Worker:
    """Looks at one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.sampler = Sampler(pid)
        self.begun = self.sampler.memory.begun
        self.sample: Sample | None = None
        self.before: Look | None = None

    def do_look(self) -> dict[str, object]:
        """Takes a look and returns its figures."""
        self.sample = self.sampler.take()
        return self.figures(False)

    def kept(self) -> Sample:
        """Returns the latest look."""
        if self.sample is None:
            raise LiveError(f"process {self.pid}: no look at it succeeded since its worker was started anew")
        return self.sample

    def figures(self, superslabs: bool) -> dict[str, object]:
        """Returns the figures of the latest look."""
        sample = self.kept()
        return {**as_dict(sample.shot, superslabs), "rss": sample.rss, "resident": sample.resident.parts(),
                "minor_faults": sample.minor_faults, "major_faults": sample.major_faults, "took": sample.took,
                "at": sample.at, "program": sample.program}

    def do_superslabs(self) -> dict[str, object]:
        """Returns the figures of the latest look with every unit."""
        return self.figures(True)

    def do_map(self) -> bytes:
        """Returns the page with the map of the heap."""
        return map_page(self.kept().shot).encode()

    # ---- Heap profiles ----

    def descriptor(self) -> Descriptor:
        """Returns the process's Descriptor."""
        return self.sampler.descriptor or find(self.sampler.memory)

    def look_at(self) -> Look:
        """Returns a Look at the heap profile."""
        return look(self.sampler.memory, self.descriptor())

    def do_before(self) -> dict[str, object]:
        """Keeps a Look, to which the next profile is the difference."""
        self.before = self.look_at()
        return {}

    def do_profile(self, kind: str, symbols: bool) -> bytes:
        """Returns a profile's file: the whole profile, or the difference to the Look before."""
        seen = self.look_at()
        profile = difference(self.before, seen, kind) if self.before else whole(seen, kind)
        if symbols:
            notes, strings = symbolize(profile), Strings(profile)
            profile.comment.extend(strings.place(note) for note in notes)
        return packed(profile)

    def do_text(self) -> bytes:
        """Returns the profile as text."""
        return as_text(self.look_at()).encode()

    def do_symbols(self, addresses: list[int]) -> dict[str, object]:
        """Returns the names of functions at the addresses."""
        return {f"{address:#x}": name for address, name in symbols_of(self.sampler.memory, addresses).items()}

    # ---- On, off, and drawn ----

    def do_switches(self) -> dict[str, object]:
        """Returns whether the profile is on and whether it can be switched. `sites` is 0 before the first start."""
        descriptor, memory = self.descriptor(), self.sampler.memory
        profile = descriptor.root(memory, "profile")
        sites = descriptor.root(memory, "profile_sites", "site_list")
        return {"on": bool(profile["on"]), "mean": profile["mean"], "sites": sites["count"],
                "can": "outside" in descriptor.roots}

    def do_switch(self, on: bool, mean: int) -> dict[str, object]:
        """Turns the profile on or off and returns the new state."""
        control = Control(self.sampler.memory, self.descriptor())
        try:
            if on:
                start_profile(control, mean or None)
            else:
                stop_profile(control)
        except Unanswered as error:
            return {**self.do_switches(), "note": str(error)}
        return self.do_switches()

    def stacks(self) -> tuple[Process, Heap]:
        """Returns the process and its profile's stacks."""
        profile = whole(self.look_at())
        symbolize(profile)
        source = Process(self.pid)
        return source, add_up({source: parse_profile(profile.SerializeToString(), source)})

    def do_tree(self, kind: str) -> dict[str, object]:
        """Returns the tree of calls by a sample type, most first, and by site the sizes and the temporary blocks."""
        _, found = self.stacks()
        index = found.index(kind)
        root, count = tree_of(found, False), 0
        least = max(root.values[index] * LEAST_SHARE, 1)

        def made(node: Node, depth: int) -> list[object]:
            nonlocal count
            count += 1
            large = sorted((child for child in node.children.values() if child.values[index] >= least),
                           key=lambda child: -child.values[index]) if depth < DEPTH_MOST else []
            return [node.name, node.place, node.values[index],
                    [made(child, depth + 1) for child in large if count < NODES_MOST]]
        sites, temporary, sizes = sites_of(found, False), temporary_of(found, False), sizes_of(found, False)
        return {"kind": kind, "root": made(root, 0),
                "sizes": [{"name": site.name, "value": site.flat_change(index),
                           "sizes": [{"size": size, "value": value, "objects": objects}
                                     for size, value, objects in rows]}
                          for site, rows in rows_of(found, sites, sizes, index, SITES_MOST)],
                "temporary": {"heads": HEADS, "sites": [
                    {"name": site.name, "freed": row.freed, "counts": row.counts()}
                    for site, row in ranked(sites, temporary)[:SITES_MOST]]}}

    def do_why(self, idle: float) -> dict[str, object]:
        """Returns why more is resident than was asked for. idle: seconds to watch for unchanged memory."""
        import time

        from hakmem.heap.why import as_data, profile_of, stacks_of
        from hakmem.live.why import why_of

        source, found = Process(self.pid), None
        why = why_of(self.sampler.memory, idle, time.sleep)
        if why.sites:
            profile = profile_of(self.sampler.memory, why, source)
            symbolize(profile)
            found = stacks_of(why, profile, source)
        return as_data(why, found, False, SITES_MOST)

    def do_flame(self, kind: str) -> bytes:
        """Returns a page with the flame graph."""
        from hakmem.heap.page import page_text  # a slow import that few questions need

        source, found = self.stacks()
        return page_text(found, found, found.index(kind), [source.name], None, False).encode()

    def do_state(self) -> dict[str, object]:
        """Returns whether there is a profile, in words."""
        try:
            heap = read_sites(self.sampler.memory, self.descriptor())
        except LiveError as error:
            return {"state": f"off: {error}" if isinstance(error, ProfileOff) else str(error)}
        return {"state": f"{'on' if heap.on else 'stopped'}, samples {heap.mean} bytes apart in the mean, "
                         f"{len(heap.sites)} sites"}


def kind_of(error: LiveError) -> str:
    """Returns the class name of an error as an answer has it."""
    for kind in (NoProcess, NoPermission):
        if isinstance(error, kind):
            return kind.__name__
    return "LiveError"


def answer_to(worker: Worker | Survey, question: dict[str, Any]) -> tuple[bytes, Answer]:
    """Returns (letter, value) of the answer to a question: a dictionary whose `do` names a method of the worker."""
    try:
        found: Answer = getattr(worker, f"do_{question.pop('do')}")(**question)
    except LiveError as error:
        return b"E", {"kind": kind_of(error), "text": str(error)}
    except ProfileError as error:
        return b"E", {"kind": "LiveError", "text": error.message}
    except (OSError, *UNSOUND) as error:
        return b"E", {"kind": "LiveError", "text": f"process {worker.pid}: it makes no sense ({problem_text(error)})"}
    return (b"B", found) if isinstance(found, bytes) else (b"J", found)


def write(letter: bytes, value: Answer) -> None:
    """Writes an answer."""
    data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    sys.stdout.buffer.write(letter + len(data).to_bytes(8, "little") + data)
    sys.stdout.buffer.flush()


def main(pid: int, parent: int, begun: int) -> None:
    """Answers questions until standard input ends. pid: the process, or 0 for any that a question names. begun: when
    it started, or 0 for whichever has the PID."""
    bound(SPACE_MOST, parent)
    try:
        if begun and start_time(pid, gone=True) != begun:
            raise NoProcess(f"process {pid} ended")
        worker = Worker(pid) if pid else Survey()
    except LiveError as error:
        write(b"E", {"kind": kind_of(error), "text": str(error)})
        return
    write(b"J", {"begun": worker.begun})
    for line in sys.stdin.buffer:
        write(*answer_to(worker, json.loads(line)))
    sys.stdout.flush()
    os._exit(0)
