"""Protects --otlp: what is pushed to a collector is the process's heap profile, in OTLP's tables.

soak_fleet.py pushes to a real collector."""

import json
from collections import Counter

import busy as programs
import pytest
from serving import refused_command

from hakmem.heap.outside import look, whole
from hakmem.heap.symbolize import symbolize
from hakmem.live.descriptor import find
from hakmem.live.memory import ProcessMemory
from hakmem.serve.otlp import CHANGED, NOW, Changes, address_of, request_of


def stacks_of(profile, kind):
    """{names of functions, innermost first: value} of a pprof profile."""
    texts, functions = profile.string_table, {one.id: one for one in profile.function}
    locations = {one.id: tuple(texts[functions[line.function_id].name] for line in one.line)
                 for one in profile.location}
    (index,) = (place for place, one in enumerate(profile.sample_type) if texts[one.type] == kind)
    found = Counter()
    for sample in profile.sample:
        found[tuple(name for one in sample.location_id for name in locations[one])] += sample.value[index]
    return +found


def stacks_in(request):
    """{sample type: {names of functions: value}} of a request, by its own tables."""
    tables, found = request["dictionary"], {}
    texts = tables["stringTable"]
    for name, rows in tables.items():
        assert rows[0] in ({}, ""), f"entry 0 of {name} stands for nothing"
    for profile in request["resourceProfiles"][0]["scopeProfiles"][0]["profiles"]:
        sums = found.setdefault(texts[profile["sampleType"]["typeStrindex"]], Counter())
        for sample in profile["samples"]:
            stack = tables["stackTable"][sample["stackIndex"]]["locationIndices"]
            lines = [line for one in stack for line in tables["locationTable"][one]["lines"]]
            names = tuple(texts[tables["functionTable"][line["functionIndex"]]["nameStrindex"]] for line in lines)
            sums[names] += int(sample["values"][0])
    return {kind: +sums for kind, sums in found.items()}


def test_a_request_is_the_profile(program, library):
    settings = {"HAKMEM_HEAP_PROFILE": "/dev/null", "HAKMEM_HEAP_PROFILE_RATE": "4096"}
    with programs.busy(program, library, variables=settings) as process:
        memory = ProcessMemory(process.pid)
        profile = whole(look(memory, find(memory)))
        symbolize(profile)
        request = json.loads(request_of([(profile, NOW)], {"process.pid": process.pid, "container.id": ""}))
        found = stacks_in(request)
        assert found == {kind: stacks_of(profile, kind) for kind in NOW}
        assert sum(found["inuse_space"].values()) > programs.HELD * 50 and any("main" in names
                                                                               for names in found["inuse_space"])
        attributes = request["resourceProfiles"][0]["resource"]["attributes"]
        assert attributes == [{"key": "process.pid", "value": {"intValue": str(process.pid)}}]
        # What was allocated is told as the difference to the push before.
        changes = Changes()
        first = stacks_in(json.loads(changes.request(process.pid, memory.begun, {})))
        process.grow(40000)
        second = stacks_in(json.loads(changes.request(process.pid, memory.begun, {})))
        assert not first.keys() & set(CHANGED) and set(CHANGED) < second.keys()
        assert sum(second["alloc_space"].values()) > 30e6
        assert changes.request(process.pid, memory.begun + 1, {}) == b"", "another process has the PID"


def test_nothing_without_a_profile(busy):
    assert Changes().request(busy.pid, ProcessMemory(busy.pid).begun, {}) == b""


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://a", "http://"])
def test_addresses(url, busy):
    assert address_of("http://a:4318/") == "http://a:4318/v1development/profiles"
    assert address_of("https://a/own") == "https://a/own"
    assert "--otlp" in refused_command(busy.pid, "--otlp", url, status=2)
