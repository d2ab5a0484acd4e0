"""Reads, checks and writes profiles as files, and looks up their strings."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import click
from google.protobuf.message import DecodeError

from hakmem import writing
from hakmem.clean import clean
from hakmem.heap.profile_pb2 import Profile

# The first bytes of a compressed file.
GZIP = b"\x1f\x8b"
# Limits: bytes of a profile's file, and bytes after unpacking. A profile of 100,000 sites has 30 MiB, which gzip packs
# to a fifth. Data that gzip packs to less than a hundredth is no profile.
FILE_MOST, UNPACKED_MOST = 256 << 20, 256 << 20
UNPACKED_LEAST, RATIO_MOST = 16 << 20, 100
# Limit of a profile's parts. Each part becomes Python objects, and two bytes of a file are enough for one.
PARTS_MOST = 2_000_000


class ProfileError(click.ClickException):
    """What is wrong with a profile, or with what is asked of it."""


class EmptyProfile(ProfileError):
    """A profile without samples, as a short process writes it."""


def read_profile(path: str | Path) -> Profile:
    """Returns the profile in the file; raises ProfileError if it is anything else."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_MOST + 1)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_profile(data, path)


def parse_profile(data: bytes, name: object) -> Profile:
    """Returns the profile in the bytes. name: where they come from, for messages."""
    profile = Profile()
    try:
        if len(data) > FILE_MOST:
            raise Bomb(f"it has more than {FILE_MOST >> 20} MiB")
        unpacked = unpack(data)
        if parts_of(unpacked) > PARTS_MOST:
            raise Bomb(f"it has more than {PARTS_MOST:,} parts")
        profile.ParseFromString(unpacked)
    except Bomb as error:
        raise ProfileError(f"{name}: is too large: {error}") from error
    except MemoryError as error:
        raise ProfileError(f"{name}: is too large: there is not enough memory for it") from error
    except EOFError as error:
        raise ProfileError(f"{name}: is truncated: its gzip data end too early") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ProfileError(f"{name}: its gzip data are damaged: {error}") from error
    except DecodeError as error:
        raise ProfileError(f"{name}: not a profile in pprof's format") from error
    if not data:
        raise ProfileError(f"{name}: is empty")
    problem = find_problem(profile)
    if problem:
        raise ProfileError(f"{name}: not a profile in pprof's format: {problem}")
    if not profile.sample:
        apart = f"; they are {profile.period} bytes apart on average (HAKMEM_HEAP_PROFILE_RATE)" if profile.period else ""
        raise EmptyProfile(f"{name}: the profile is empty: it holds no samples{apart}")
    return profile


class Bomb(Exception):
    """A file that would unpack to more than a profile can be."""


def unpack(data: bytes) -> bytes:
    """Returns the bytes, unpacked if gzip packed them. Raises Bomb beyond the limit of a profile's size."""
    if not data.startswith(GZIP):
        return data
    most = min(UNPACKED_MOST, max(UNPACKED_LEAST, RATIO_MOST * len(data)))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(most + 1)
    if len(unpacked) > most:
        raise Bomb(f"{len(data):,} bytes of gzip become more than {most:,}")
    return unpacked


def parts_of(data: bytes) -> int:
    """Returns about how many messages a protobuf message can hold at most: counts the tags at its top, and estimates
    nested messages by their bytes. Stops counting above PARTS_MOST. Ignores damage, which the parser reports."""
    at, end, found = 0, len(data), 0
    while at < end and found <= PARTS_MOST:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            # The smallest nested message has two bytes. Names are texts, without zeros.
            found += 1 + (data.count(b"\0", at, at + size) // 2 if tag >> 3 in NESTED and size > NESTED_LEAST else 0)
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            break
    return found


# Fields of a Profile whose messages hold messages: samples have labels, locations have lines. An empty message is its
# tag and a zero. No meaningful sample or location is longer than this.
NESTED, NESTED_LEAST = (2, 4), 4096


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (number, the place behind it)."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            break
    return value, at


def find_problem(profile: Profile) -> str | None:
    """Returns what is wrong with the profile, such as a reference to nothing; None if it is sound. Needed because
    protobuf parses many other files without an error."""
    if not profile.string_table or profile.string_table[0]:
        return "it has no table of strings"
    if not profile.sample_type:
        return "it has no sample types"
    strings = [*(value for kind in profile.sample_type for value in (kind.type, kind.unit)),
               *(value for mapping in profile.mapping for value in (mapping.filename, mapping.build_id)),
               *(value for function in profile.function
                 for value in (function.name, function.system_name, function.filename)),
               *(value for sample in profile.sample for label in sample.label
                 for value in (label.key, label.str, label.num_unit)),
               *profile.comment, profile.drop_frames, profile.keep_frames, profile.default_sample_type,
               profile.period_type.type, profile.period_type.unit]
    if not all(0 <= value < len(profile.string_table) for value in strings):
        return "a string is not in its table"
    locations = {location.id for location in profile.location}
    functions = {function.id for function in profile.function}
    mappings = {mapping.id for mapping in profile.mapping}
    if any(number not in locations for sample in profile.sample for number in sample.location_id):
        return "a sample's location is missing"
    if any(len(sample.value) != len(profile.sample_type) for sample in profile.sample):
        return "a sample has more or fewer values than there are sample types"
    if any(location.mapping_id and location.mapping_id not in mappings for location in profile.location):
        return "a location's mapping is missing"
    if any(line.function_id not in functions for location in profile.location for line in location.line):
        return "a line's function is missing"
    return None


def write_profile(profile: Profile, path: str | Path) -> None:
    """Writes the profile packed by gzip. The file is never incomplete."""
    write_whole(path, gzip.compress(profile.SerializeToString(), mtime=0))


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes the bytes as hakmem.writing.write_whole does; raises ProfileError if that fails."""
    try:
        writing.write_whole(path, data)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from error


def type_names(profile: Profile) -> list[str]:
    """Returns the names of the sample types."""
    return [clean(profile.string_table[kind.type]) for kind in profile.sample_type]
