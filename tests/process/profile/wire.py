"""Reads profile.proto without protobuf, so that an independent reader checks the library's encoder."""

import gzip
from dataclasses import dataclass, field


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message in order: (number, value), where a value is an int or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        assert kind in (0, 2), f"wire type {kind} is none that the format needs"
        value, at = varint(data, at)
        if kind == 2:
            assert at + value <= len(data), "a field reaches beyond its message"
            value, at = data[at : at + value], at + value
        yield key >> 3, value


def numbers(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


@dataclass
class Mapping:
    start: int
    limit: int
    offset: int
    file: str
    build_id: str


@dataclass
class Sample:
    addresses: list
    values: dict
    labels: dict
    units: dict


@dataclass
class Profile:
    samples: list
    mappings: dict
    locations: dict
    period: int
    default_type: str
    comments: list
    time_ns: int
    strings: list = field(repr=False)

    def total(self, kind):
        return sum(sample.values[kind] for sample in self.samples)


def read(path):
    """The profile in a file, with all references resolved."""
    content = list(fields(gzip.decompress(path.read_bytes())))
    strings = [value.decode() for number, value in content if number == 6]
    assert strings[0] == ""

    def one(number, default=0):
        values = [value for which, value in content if which == number]
        return values[0] if values else default

    types = [strings[dict(fields(value))[1]] for number, value in content if number == 1]
    mappings = {}
    for number, value in content:
        if number == 3:
            row = dict(fields(value))
            mappings[row[1]] = Mapping(row[2], row[3], row[4], strings[row[5]], strings[row[6]])
    locations = {}
    for number, value in content:
        if number == 4:
            row = dict(fields(value))
            assert row[1] not in locations, "a location is there twice"
            locations[row[1]] = (row[3], row.get(2, 0))
    samples = []
    for number, value in content:
        if number == 2:
            parts = list(fields(value))
            ids = [i for which, packed in parts if which == 1 for i in numbers(packed)]
            values = [v for which, packed in parts if which == 2 for v in numbers(packed)]
            assert len(values) == len(types)
            labels, units = {}, {}
            for which, packed in parts:
                if which == 3:
                    label = dict(fields(packed))
                    if strings[label[1]] in labels:  # the program has a label of this key, too
                        assert strings[label[1]] == "bytes", "a key is there twice"
                        continue
                    number = label.get(3, 0)
                    labels[strings[label[1]]] = strings[label[2]] if 2 in label else number - (number >> 63 << 64)
                    units[strings[label[1]]] = strings[label.get(4, 0)]
            samples.append(Sample([locations[i][0] for i in ids], dict(zip(types, values)), labels, units))
    comments = [strings[value] for number, value in content if number == 13]
    return Profile(samples, mappings, locations, one(12), strings[one(14)], comments, one(9), strings)
