"""Makes profiles for the tests: from given stacks, or from what sites.cpp prints about itself."""

import gzip
import re
import subprocess
import sys

import blackbox
import click.testing

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.heap.command import heap  # noqa: E402  (stands on hakmem)
from hakmem.heap.profile_pb2 import Profile  # noqa: E402

TYPES = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"))
# The types that HAKMEM's own profiler writes.
TYPES_WITH_LIVES = (*TYPES, ("freed_objects", "count"), ("lifetime", "milliseconds"))
TYPES_WITH_OWN = (*TYPES_WITH_LIVES, ("own_freed_objects", "count"))
TIME = 1795255201_000000000  # 2026-11-21 10:00:01 UTC


class Making:
    """A profile under construction."""

    def __init__(self, types=TYPES, period=1):
        self.profile = Profile(period=period, time_nanos=TIME, string_table=[""])
        self.functions = {}
        for name, unit in types:
            self.profile.sample_type.add(type=self.text(name), unit=self.text(unit))
        self.profile.period_type.CopyFrom(self.profile.sample_type[min(3, len(types) - 1)])
        self.profile.default_sample_type = self.text(types[min(3, len(types) - 1)][0])

    def text(self, value):
        if value not in self.profile.string_table:
            self.profile.string_table.append(value)
        return list(self.profile.string_table).index(value)

    def mapping(self, start, limit, offset, name, build_id=""):
        self.profile.mapping.add(id=len(self.profile.mapping) + 1, memory_start=start, memory_limit=limit,
                                 file_offset=offset, filename=self.text(name), build_id=self.text(build_id))

    def function(self, name, file):
        if (name, file) not in self.functions:
            self.functions[name, file] = len(self.functions) + 1
            self.profile.function.add(id=len(self.functions), name=self.text(name), system_name=self.text(name),
                                      filename=self.text(file))
        return self.functions[name, file]

    def location(self, place):
        """An address, or the lines ((function, file, line), ...) of a place, innermost first."""
        location = self.profile.location.add(id=len(self.profile.location) + 1)
        if isinstance(place, int):
            location.address = place
            location.mapping_id = next((mapping.id for mapping in self.profile.mapping
                                        if mapping.memory_start <= place < mapping.memory_limit), 0)
        else:
            for name, file, line in place:
                location.line.add(function_id=self.function(name, file), line=line)
        return location.id

    def stack(self, places, *values, lived_from=None, size=None, size_unit="bytes", calls_from=None):
        sample = self.profile.sample.add(location_id=[self.location(place) for place in places], value=values)
        if lived_from is not None:
            sample.label.add(key=self.text("lifetime_from"), num=lived_from, num_unit=self.text("milliseconds"))
        if size is not None:
            sample.label.add(key=self.text("bytes"), num=size, num_unit=self.text(size_unit))
        if calls_from is not None:
            sample.label.add(key=self.text("allocations_from"), num=calls_from, num_unit=self.text("count"))
        return self

    def write(self, path, packed=True):
        data = self.profile.SerializeToString()
        path.write_bytes(gzip.compress(data) if packed else data)
        return path


def named(*names, file="/src/a.c"):
    """Places with one function each, innermost first: "name:line", or "name" for line 1."""
    found = [re.fullmatch(r"(.*?)(?::(\d+))?", name, re.DOTALL) for name in names]
    return [((match[1], file, int(match[2] or 1)),) for match in found]


def known():
    """Three sites: fill and pour below work, and grow below main. pour has freed everything."""
    making = Making()
    making.stack(named("fill:7", "work:20", "main:30"), 10, 4096, 4, 1024)
    making.stack(named("fill:8", "work:20", "main:30"), 2, 2048, 2, 2048)
    making.stack(named("pour:9", "work:21", "main:30"), 1000, 1 << 20, 0, 0)
    making.stack(named("grow:3", "grow:4", "grow:4", "main:31"), 1, 8192, 1, 8192)
    return making


def with_lives():
    """fill frees 100 objects at once and 10 after 20 s. keep frees nothing."""
    making = Making(TYPES_WITH_LIVES)
    making.stack(named("fill", "main"), 130, 1300, 20, 200, 0, 0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 100, 0, lived_from=0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 10, 200_000, lived_from=16384)
    making.stack(named("keep", "main"), 5, 500, 5, 500, 0, 0)
    return making


def with_sizes(unit="bytes"):
    """fill has blocks of 64 and of 1024 bytes, and freed some. wide has blocks of 40 sizes."""
    making = Making(TYPES_WITH_LIVES)
    making.stack(named("fill:7", "main"), 30, 1920, 20, 1280, 0, 0, size=64, size_unit=unit)
    making.stack(named("fill:8", "main"), 5, 5120, 5, 5120, 0, 0, size=1024, size_unit=unit)
    making.stack(named("fill:7", "main"), 0, 0, 0, 0, 10, 0, lived_from=0)
    for number in range(1, 41):
        making.stack(named("wide", "main"), 1, 16 * number, 1, 16 * number, 0, 0, size=16 * number, size_unit=unit)
    return making


def with_own_frees():
    """Of fill's 110 freed objects its thread freed 88: 55 at once, 11 after 8 allocations, 22 later."""
    making = Making(TYPES_WITH_OWN)
    making.stack(named("fill", "main"), 130, 1300, 20, 200, 0, 0, 0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 110, 0, 0, lived_from=0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 55, calls_from=0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 11, calls_from=8)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 22, calls_from=16384)
    making.stack(named("keep", "main"), 5, 500, 5, 500, 0, 0, 0)
    return making


HELD = {"keep": (40, 60, 100), "cache": (50, 5, 30)}  # KiB at three moments, a minute apart


def at_moments(folder):
    """Three profiles of one process. The order of their names is not the order of their times."""
    made = []
    for moment, name in enumerate(("c", "a", "b")):
        making = Making()
        making.profile.time_nanos = TIME + moment * 60 * 10**9
        for function, amounts in HELD.items():
            inuse = amounts[moment] * 1024
            making.stack(named(f"{function}:7", "work:20", "main:3", file="/src/work.c"), 100, 10**6 + inuse, 10, inuse)
        made.append(making.write(folder / f"{name}.pb.gz"))
    return made


def observed(program, build_id):
    """A profile of the stacks that sites.cpp's program prints: {name: its values} as (objects, bytes), in its order."""
    done = subprocess.run([program], capture_output=True, text=True, check=True, env=blackbox.environment())
    making = Making()
    stacks = []
    for line in done.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "map":
            fields = rest.split(None, 5)
            if len(fields) == 6 and "x" in fields[1]:
                start, limit = (int(part, 16) for part in fields[0].split("-"))
                making.mapping(start, limit, int(fields[2], 16), fields[5],
                               build_id if fields[5] == str(program) else "")
        else:
            stacks.append([int(address, 16) - 1 for address in rest.split()[1:]])
    for number, addresses in enumerate(stacks, 1):
        making.stack(addresses, number, 100 * number, number, 10 * number)
    return making


def run(*arguments):
    return click.testing.CliRunner().invoke(heap, [str(argument) for argument in arguments])


def words(output):
    """The lines of an output, with one blank between words."""
    return [" ".join(line.split()) for line in output.splitlines()]


def read(path):
    profile = Profile()
    profile.ParseFromString(gzip.decompress(path.read_bytes()))
    return profile
