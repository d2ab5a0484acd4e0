"""Profiles as files: reading and checking, writing, and looking strings up."""

import gzip
import os
import tempfile
import zlib
from pathlib import Path

import click
from google.protobuf.message import DecodeError

from hakmem.heap.profile_pb2 import Profile

GZIP = b"\x1f\x8b"


class ProfileError(click.ClickException):
    """What is wrong with a profile, or with what is asked of it."""


def read_profile(path):
    """The profile in the file; whatever else the file is, a ProfileError says so."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_profile(data, path)


def parse_profile(data, name):
    """The profile that the bytes are; the name says where they are from."""
    profile = Profile()
    try:
        profile.ParseFromString(unpack(data))
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
        raise ProfileError(f"{name}: the profile is empty: it holds no samples{apart}")
    return profile


def unpack(data):
    return gzip.decompress(data) if data.startswith(GZIP) else data


def find_problem(profile):
    """What in the profile refers to nothing, or None. Protobuf itself takes many files for a message."""
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


def write_profile(profile, path):
    """Writes it packed; the file is whole or not there."""
    write_whole(path, gzip.compress(profile.SerializeToString(), mtime=0))


def write_whole(path, data):
    """Writes bytes under a name of their own first, and renames; a failure is a ProfileError."""
    path = Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from error


def type_names(profile):
    return [profile.string_table[kind.type] for kind in profile.sample_type]
