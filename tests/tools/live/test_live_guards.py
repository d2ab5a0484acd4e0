"""Protects the guard units of a hardened process in what tools tell: a kind of their own, and no resident byte."""

import json

import blackbox
import pytest
from conftest import HERE

from hakmem.gdb.blocks import UNIT, locate
from hakmem.live import ProcessMemory, find, snapshot
from hakmem.live.memory import Unreadable

SECURE = blackbox.LIBRARY.parent / "libhakmem-secure.so"
UNIT_BYTES = 65536
# Slabs of one and of more units. The blocks of 700 bytes alone fill the first three SuperSlabs, which are strict, and
# HAKMEM takes another one only when no unit is free: so at least two are full, whichever order they were filled in.
TAKEN = ((700, 6000), (20000, 100), (100000, 30), (400000, 4))


@pytest.fixture
def hardened(start, compiled):
    """known.c on the hardened library. Only small pages, so that Rss stays while the process waits."""
    program = start([compiled(HERE / "known.c")], SECURE, {"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_THP": "never"})
    for size, count in TAKEN:
        program.ask("take", size, count)
    return program


def is_readable(memory, address):
    try:
        memory.read(address, 1)
    except Unreadable:
        return False
    return True


def test_guard_units_are_those_that_nobody_can_access(hardened, hakmem):
    told = json.loads(hakmem("stats", hardened.pid, "--json", "--superslabs"))
    memory, guards = ProcessMemory(hardened.pid), 0
    for superslab in told["superslabs"]:
        states = [unit["state"] for unit in superslab["units"]]
        if superslab["tier"] == "EMPTY":
            continue
        readable = [is_readable(memory, superslab["address"] + (number + 1) * UNIT_BYTES) for number in range(31)]
        assert [state != "guard" for state in states] == readable, superslab["address"]
        if "guard" not in states:
            continue  # it is not strict
        assert states[0] == states[30] == "guard"
        joined = [unit["state"] == "active" and not unit["first"] for unit in superslab["units"]]
        assert [last for last in range(30) if states[last] == "active" and not joined[last + 1]
                and states[last + 1] != "guard"] == [], "a slab without a guard unit behind it"
        guards += states.count("guard")
    assert guards >= 3 * 16
    assert sum(row["guard_units"] for row in told["pools"]) == guards
    assert told["totals"]["guard_units"] == guards * UNIT_BYTES <= told["totals"]["purged"]
    assert all(sum(row[name] for name in row if name.endswith("_units")) == 31 * row["superslabs"]
               for row in told["pools"])
    # The library and its readers agree that a SuperSlab whose free units are guard units is full.
    descriptor = find(memory)
    shot = snapshot(memory, descriptor)
    kinds = {superslab.address: {unit.state for unit in superslab.units} for superslab in shot.superslabs
             if superslab.tier == "FULL"}
    assert all(states <= {"guard", "active", "warm"} for states in kinds.values()), kinds
    full = [address for address, states in kinds.items() if {"guard", "active"} <= states]
    assert len(full) >= 2
    # gdb names it.
    place = locate(memory, descriptor, shot, full[0] + UNIT_BYTES)
    assert place.kind == UNIT and "guard unit" in place.text
    # explain counts none.
    made = json.loads(hakmem("explain", hardened.pid, "--json"))
    assert made["estimated"] == "" and made["sum"] == made["rss"] == made["rss_before"] == made["rss_after"], made
    assert made["heap"]["live"] > sum(size * count for size, count in TAKEN)


def test_no_guard_units_without_hardening(known, hakmem):
    program = known()
    program.ask("take", 700, 3000)
    told = json.loads(hakmem("stats", program.pid, "--json", "--superslabs"))
    assert told["totals"]["guard_units"] == 0
    assert {unit["state"] for superslab in told["superslabs"] for unit in superslab["units"]} <= {
        "untouched", "dirty", "warm", "active"}
