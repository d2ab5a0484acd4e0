"""Protects every switch of a table, in every build: it prints its table, or says that the build has none."""

import re
from pathlib import Path

import pytest

import blackbox
from flavor import CARRIED

# The start of each switch's output, with a program that allocates a little. {none}: builds without the table.
TABLES = {
    "HAKMEM_FRONT_STATS": r"thread caches: \d+ refills of \d+ blocks",
    "HAKMEM_WARM_POOL_STATS": r"warm pool: \d+ hits, \d+ misses \(\d+\.\d % hits\), \d+ slabs prefilled",
    "HAKMEM_SS_LRU_DEBUG": r"LRU of empty SuperSlabs: \d+ entered \(\d+ of them prewarmed\), \d+ used again",
    "HAKMEM_SS_PREWARM_DEBUG": r"LRU of empty SuperSlabs: \d+ entered",
    "HAKMEM_DEBUG_COUNTERS": r"debug counters that are not 0; below each, block sizes and their counts" if CARRIED else
                             r"HAKMEM_DEBUG_COUNTERS: this build carries no debug counters$",
    "HAKMEM_TINY_PROFILE": r"HAKMEM_TINY_PROFILE: this build carries no cycle profile$",
    "HAKMEM_SHOW_STATS": r"memory in bytes",
}


def documented():
    text = (blackbox.REPOSITORY / "docs/options.md").read_text()
    return set(re.findall(r"^\| `(HAKMEM_(?:\w+_(?:STATS|DEBUG)|DEBUG_COUNTERS|TINY_PROFILE))`", text, re.M))


def test_these_are_all_that_are_documented():
    assert set(TABLES) == documented()


@pytest.mark.parametrize("switch", sorted(TABLES))
def test_a_switch_prints_its_table_and_no_other(switch):
    result = blackbox.run(["bash", "-c", ":"], preload=blackbox.LIBRARY, env={switch: "1"})
    assert result.status == 0, result.report()
    lines = [line.removeprefix("hakmem: ") for line in result.stderr.splitlines()]
    assert re.match(TABLES[switch], lines[0]), result.report()
    for other, start in TABLES.items():
        if start != TABLES[switch] and switch != "HAKMEM_SHOW_STATS" and not start.startswith(TABLES[switch]) \
                and not TABLES[switch].startswith(start):
            assert not any(re.match(start, line) for line in lines), other


def test_off_nothing_is_printed():
    result = blackbox.run(["bash", "-c", ":"], preload=blackbox.LIBRARY, env=dict.fromkeys(TABLES, "0"))
    assert (result.status, result.stderr) == (0, "")


def test_superslabs_that_enter_and_leave_the_lru_are_named(compiled):
    folder = blackbox.LIBRARY_FOLDER
    program = compiled(Path(__file__).parent / "script.c", f"-L{folder}", "-lhakmem", f"-Wl,-rpath,{folder}")
    result = blackbox.run([program, "superslabs", 1 << 20, 10],
                          env={"HAKMEM_SS_LRU_DEBUG": "1", "HAKMEM_SS_PREWARM": "2", "HAKMEM_PURGE_THREAD": "never",
                               "HAKMEM_PURGE_DELAY": "3600000"})
    assert result.status == 0, result.report()

    def said(what):
        return len(re.findall(rf"^hakmem: LRU: SuperSlab \d+ {what}", result.stderr, re.M))

    table = re.search(r": (\d+) entered \((\d+) of them prewarmed\), (\d+) used again, (\d+) purged, (\d+) are",
                      result.stderr)
    entered, prewarmed, reused, purged, left = map(int, table.groups())
    assert (said("enters") + 2, 2, said("is used again"), said("was purged")) == (entered, prewarmed, reused, purged)
    assert entered == 12 and reused >= 2 and left == entered - reused - purged
