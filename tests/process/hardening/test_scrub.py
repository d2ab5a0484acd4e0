"""Protects the looks at blocks in use, of scrubs and of the patrol: they find writes past ends, and nothing else."""

import re

import pytest
from test_hardening import HERE, SECURE

import blackbox
from messages import aborted, misuse_in


@pytest.fixture(scope="module")
def scrubbed(compiled):
    program = compiled(HERE / "scrubbed.c", "-O1", "-pthread")

    return lambda kind, number, env=None: blackbox.run([program, kind, str(number)], preload=SECURE, env=env)


def assert_found(result, size):
    written, = re.findall(r"^written: (0x[0-9a-f]+)$", result.stderr, re.MULTILINE)
    said = aborted(result)
    # The byte is in the last word of a small block: malloc_trim may find it by a patrol, as other blocks leave. The
    # line may begin with the block behind it.
    assert result.stderr.count(written) == 2 and "on" not in result.stdout, result.report()
    if said.function != "free" or size >= 100:
        assert (said.function, said.pointer, said.numbers) == ("scrub", written, (size, size + 1)), result.report()


def test_a_write_past_the_end_of_a_block_that_stays(scrubbed):
    for size in (24, 500, 1100, 5000, 20000):
        assert_found(scrubbed("trim", size), size)


def test_the_purge_thread_ends_the_process(scrubbed):
    """The program waits. Its last calls say nothing, because blocks of this size have no guard in their neighbours."""
    settings = {"HAKMEM_PURGE_THREAD": "always", "HAKMEM_PURGE_DELAY": "20"}
    assert_found(scrubbed("wait", 1100, settings), 1100)


@pytest.mark.parametrize("size", [8000, 4000, 40000])
def test_pages_that_the_program_closed_are_not_read(scrubbed, size):
    result = scrubbed("closed", size)
    assert (result.status, result.stdout, result.stderr) == (0, "on\n", ""), result.report()


def test_threads_at_work_raise_no_alarm(scrubbed):
    """Seals come, change and go while they are looked at."""
    result = scrubbed("work", 1500)
    assert (result.status, result.stdout, result.stderr) == (0, "on\n", ""), result.report()


def test_the_patrol_finds_a_write_between_blocks_that_stay(compiled):
    """The program frees neither the block nor its neighbours. A run finds the write with a chance of 95 %, and by a
    patrol with one of a third or more; otherwise by the block behind. So 60 runs without a patrol that finds it have a
    chance below (2/3)^60, which is 3e-11. About three runs are needed."""
    program = compiled(HERE / "patrolled.c", "-O1")
    for seed in range(60):
        result = blackbox.run([program, str(seed), "1000", "1000", "2000000"], preload=SECURE)
        assert result.status == 0, result.report()
        # A message that names no other block is a patrol's.
        if any(said.function in ("free", "malloc") and (said.kind, said.numbers) == (None, ())
               for said in misuse_in(result.stderr)):
            return
    raise AssertionError(result.report())
