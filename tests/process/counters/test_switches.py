"""Protects every switch of a table, in every build: it prints its table, or says that the build has none."""

import re
from pathlib import Path

import blackbox
from flavor import CARRIED
from messages import numbers

# The switches, and whether this build has their tables.
TABLES = {
    "HAKMEM_FRONT_STATS": True,
    "HAKMEM_WARM_POOL_STATS": True,
    "HAKMEM_SS_LRU_DEBUG": True,
    "HAKMEM_SS_PREWARM_DEBUG": True,
    "HAKMEM_DEBUG_COUNTERS": CARRIED,
    "HAKMEM_TINY_PROFILE": False,
    "HAKMEM_SHOW_STATS": True,
}
# Both print the LRU's table.
SAME = {"HAKMEM_SS_LRU_DEBUG", "HAKMEM_SS_PREWARM_DEBUG"}


def documented():
    text = (blackbox.REPOSITORY / "docs/options.md").read_text()
    return set(re.findall(r"^\| `(HAKMEM_(?:\w+_(?:STATS|DEBUG)|DEBUG_COUNTERS|TINY_PROFILE))`", text, re.M))


def test_these_are_all_that_are_documented():
    assert set(TABLES) == documented()


def test_a_switch_prints_its_table_and_no_other():
    """A line without its figures stands for its table."""
    said = {}
    for switch, has_table in TABLES.items():
        result = blackbox.run(["bash", "-c", ":"], preload=blackbox.LIBRARY, env={switch: "1"})
        assert result.status == 0 and result.stderr.startswith("hakmem: "), result.report()
        assert has_table or (switch in result.stderr and result.stderr.count("\n") == 1), result.report()
        said[switch] = [re.sub(r"\d+", "", line) for line in result.stderr.splitlines()]
    for switch in set(TABLES) - {"HAKMEM_SHOW_STATS"}:
        others = {line for other in set(TABLES) - {switch, "HAKMEM_SHOW_STATS"} if not {switch, other} <= SAME
                  for line in said[other]}
        assert said[switch][0] not in others, switch


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

    told = re.findall(r"^hakmem: LRU: SuperSlab \d+ (.+)$", result.stderr, re.M)
    (table,) = (line for line in result.stderr.splitlines() if "prewarmed" in line)
    entered, prewarmed, reused, purged, left = numbers(table)[:5]
    # Those made ready enter without a line.
    told = [words for words in told if not words.startswith("leaves")]  # those are purged next
    assert len(told) == entered - prewarmed + reused + purged, result.report()
    assert (entered, prewarmed) == (12, 2) and reused >= 2 and left == entered - reused - purged, result.report()
