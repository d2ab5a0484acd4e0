"""Protects what hakmem explain and doctor say of free memory that waits: who gives it back, and that it leaves so."""

import json
import time

import pytest
from conftest import command

from hakmem.live.departure import AT_ONCE, AT_REST, BY_CALLS, BY_CLOCK, departure

MIB = 1 << 20
SECONDS_MOST = 60
HOUR = 3600000


@pytest.mark.parametrize("delay, choice, thread, who", [
    (0, 0, True, AT_ONCE), (500, 0, False, BY_CALLS), (500, 0, True, AT_REST), (500, 1, False, BY_CALLS),
    (500, 2, True, BY_CLOCK), (500, 2, False, BY_CALLS)])
def test_who_sees_to_it(delay, choice, thread, who):
    found = departure({"purge_delay": delay, "purge_thread": choice}, thread)
    assert (found.who, found.delay_ms) == (who, delay)


def told(process):
    """(who gives it back, bytes that wait)"""
    result = command("explain", "--json", process.pid)
    assert result.status == 0, result.report()
    data = json.loads(result.stdout)
    return data["departure"]["who"], data["waiting"]


def freed(known, delay):
    process = known(env={"HAKMEM_THP": "never", "HAKMEM_PURGE_DELAY": str(delay)})
    process.ask("take", 40000, 300)
    process.ask("drop", 40000, 1)
    return process


def test_without_a_thread_it_waits_for_a_call(known):
    """Nothing runs in the process between its calls, so nothing leaves, however long one waits."""
    who, waiting = told(freed(known, HOUR))
    assert who == BY_CALLS and waiting >= 8 * MIB
    process = freed(known, 10)
    before = told(process)
    time.sleep(0.1)
    assert told(process) == before
    process.ask("take", 300000, 1)  # a thread's cache has no such block
    assert told(process)[1] <= MIB


def test_with_a_thread_it_leaves_by_itself(known):
    process = known(env={"HAKMEM_THP": "never", "HAKMEM_PURGE_DELAY": "10"})
    process.ask("thread", 64, 1)
    process.ask("take", 40000, 1000)
    process.ask("drop", 40000, 1)
    end = time.monotonic() + SECONDS_MOST
    while (found := told(process))[1] > MIB and time.monotonic() < end:
        time.sleep(0.02)
    assert found[0] == AT_REST and found[1] <= MIB


def test_doctor_says_it(known):
    for env, level in (({}, "note"), ({"HAKMEM_PURGE_THREAD": "always"}, "ok")):
        process = known(env=env)
        result = command("doctor", "--json", process.pid)
        found = [row for row in json.loads(result.stdout)["findings"] if row["subject"] == "purging"]
        assert [row["level"] for row in found] == [level]


def test_free_pages_of_slabs_more_than_half_in_use_stay(known):
    """Three quarters of each slab are in use, and malloc_trim gives no page back. With three eighths it does."""
    process = known(env={"HAKMEM_THP": "never"})

    def heap():
        process.ask("collect")
        return json.loads(command("explain", "--json", process.pid).stdout)["heap"]
    process.ask("take", 4096, 1600)
    process.ask("drop", 4096, 4)
    found = heap()
    assert found["fragmentation"] >= 0.9 * 400 * 4096 and found["free_in_slab"] <= 0.1 * 400 * 4096
    process.ask("drop", 4096, 2)
    found = heap()
    assert found["fragmentation"] <= 0.1 * 400 * 4096 and found["live"] >= 600 * 4096
