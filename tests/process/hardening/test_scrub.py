"""Protects the looks at blocks in use, of scrubs and of the patrol: they find writes past ends, and nothing else."""

import re
import signal

import pytest
from test_hardening import HERE, WAYS

import blackbox


@pytest.fixture(scope="module")
def scrubbed(compiled):
    program = compiled(HERE / "scrubbed.c", "-O1", "-pthread")

    def run(way, kind, number, env=None):
        preload, environment = WAYS[way]
        return blackbox.run([program, kind, str(number)], preload=preload, env={**environment, **(env or {})})

    return run


def assert_found(result, size):
    written, = re.findall(r"^written: (0x[0-9a-f]+)$", result.stderr, re.MULTILINE)
    lines = [line for line in result.stderr.splitlines() if line.startswith("hakmem: ")]
    ways = [f"hakmem: scrub({written}): written past its end: {size} bytes were asked for, byte {size + 1} changed; "
            "found as its slab is scrubbed; size class "]
    if size < 100:  # the byte is in the last word of the block: malloc_trim may find it as other blocks leave
        ways.append(f"hakmem: free({written}): written at or past its end; found by a patrol; size class ")
    assert len(lines) == 1 and lines[0].startswith(tuple(ways)), result.report()
    assert result.status == -signal.SIGABRT and "on" not in result.stdout, result.report()


@pytest.mark.parametrize("size", [24, 500, 1000, 1100, 5000, 20000])
@pytest.mark.parametrize("way", WAYS)
def test_a_write_past_the_end_of_a_block_that_stays(scrubbed, way, size):
    assert_found(scrubbed(way, "trim", size), size)


@pytest.mark.parametrize("way", WAYS)
def test_the_purge_thread_ends_the_process(scrubbed, way):
    """The program waits. Its last calls say nothing, because blocks of this size have no guard in their neighbours."""
    settings = {"HAKMEM_PURGE_THREAD": "always", "HAKMEM_PURGE_DELAY": "20"}
    assert_found(scrubbed(way, "wait", 1100, settings), 1100)


@pytest.mark.parametrize("size", [8000, 4000, 40000])
@pytest.mark.parametrize("way", WAYS)
def test_pages_that_the_program_closed_are_not_read(scrubbed, way, size):
    result = scrubbed(way, "closed", size)
    assert (result.status, result.stdout, result.stderr) == (0, "on\n", ""), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_threads_at_work_raise_no_alarm(scrubbed, way):
    """Seals come, change and go while they are looked at."""
    result = scrubbed(way, "work", 3000)
    assert (result.status, result.stdout, result.stderr) == (0, "on\n", ""), result.report()


def test_the_patrol_finds_a_write_between_blocks_that_stay(compiled):
    """The program frees neither the block nor its neighbours. Without a patrol half of the runs find nothing, with it one
    in twenty.

    A free of the ordinary library finds most such writes by the block behind."""
    preload, environment = WAYS["secure"]
    program = compiled(HERE / "patrolled.c", "-O1")
    results = [blackbox.run([program, str(seed), "1000", "1000", "2000000"], preload=preload, env=environment)
               for seed in range(24)]
    assert [result.status for result in results] == [0] * 24, results[0].report()
    found = [result for result in results if result.stdout != "none\n"]
    assert len(found) >= 18, [result.stdout for result in results]
    assert any("written at or past its end; found by a patrol" in result.stderr for result in found)
