"""Protects the exact counts of hits and misses (HAKMEM_FRONT_STATS), by class and part, at exit and while running."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

import blackbox
from hakmem.live import ProcessMemory, find, snapshot
from hakmem.live.hits import of_frees, of_mallocs, parts

# No tick flushes a cache meanwhile.
COUNTING = {"HAKMEM_FRONT_STATS": "1", "HAKMEM_PURGE_THREAD": "never", "HAKMEM_PURGE_DELAY": "3600000"}
ROUNDS = 20000
# Block sizes of the classes that only hits.c uses.
SIZES = (1024, 40960, 65536, 768, 3072, 1536)


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(blackbox.REPOSITORY / "tests/process/stats/hits.c", "-O1", "-fno-builtin", "-pthread")


def ran(program, threads, env, library=blackbox.LIBRARY):
    done = blackbox.run([program, ROUNDS, threads], preload=library, env=env, stdin="")
    assert done.status == 0, done.report()
    return done.stderr


def table(text):
    """{block size: (malloc hits, misses, free hits, overflows)} of the table at exit."""
    rows = [re.sub(r" %", "", line.removeprefix("hakmem: ")).split() for line in text.splitlines()]
    return {int(row[0]): tuple(int(row[place]) for place in (1, 2, 4, 5)) for row in rows
            if len(row) == 10 and row[0].isdigit()}


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("env", [{}, {"HAKMEM_FC_CAP": "8"}, {"HAKMEM_CACHE_BYTES": "16K"},
                                 {"HAKMEM_HEAP_PROFILE": "heap.gz", "HAKMEM_HEAP_PROFILE_RATE": "20000"}])
def test_hits_and_misses_are_all_calls(program, env, threads, tmp_path):
    if "HAKMEM_HEAP_PROFILE" in env:
        env = {**env, "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz")}
    rows, calls = table(ran(program, threads, COUNTING | env)), ROUNDS * (threads + 1)
    # The blocks of the C library and of the unwinder are of other classes.
    for size in SIZES:
        hits, misses, frees, overflows = rows[size]
        assert (hits + misses, frees + overflows) == (calls, calls), (size, rows[size])


@pytest.mark.parametrize("threads", [0, 3])
def test_spans_of_the_hardened_library(program, threads):
    """One freed span in 16 is closed, which is no overflow."""
    rows = table(ran(program, threads, COUNTING, blackbox.LIBRARY.with_name("libhakmem-secure.so")))
    spans = [sum(values) for values in zip(*(row for size, row in rows.items() if size >= 65536), strict=True)]
    assert (spans[0] + spans[1], spans[2] + spans[3]) == (ROUNDS * (threads + 1),) * 2, rows


def test_pairs_on_a_hit_miss_once(program):
    rows = table(ran(program, 0, COUNTING))
    for size in (1024, 65536, 1536):
        assert rows[size][:2] == (ROUNDS - 1, 1), (size, rows[size])


def test_every_format_has_them_or_none(program):
    for env in (COUNTING, {"HAKMEM_FRONT_STATS": "0"}):
        counting = env is COUNTING
        text = ran(program, 1, {**env, "HAKMEM_SHOW_STATS": "json"})
        told = json.JSONDecoder().raw_decode(text[text.index("{"):])[0]
        for row in told["classes"]:
            if row["block_size"] in SIZES:
                assert (row["malloc_hits"] is not None, row["free_hits"] is not None) == (counting, counting)
                assert not counting or row["malloc_hits"] + row["malloc_misses"] == 2 * ROUNDS
        counters = told["counters"]
        share = counters["malloc_coverage"]
        assert (share is not None) == counting
        if counting:
            assert abs(share - counters["malloc_hits"] / (counters["malloc_hits"] + counters["malloc_misses"])) <= 1e-4
        said = ran(program, 1, {**env, "HAKMEM_SHOW_STATS": "prometheus"})
        families = {family.name: family for family in text_string_to_metric_families(
            "\n".join(line for line in said.splitlines() if not line.startswith("hakmem: ")) + "\n")}
        assert ("hakmem_malloc_hits" in families) == ("hakmem_class_free_hits" in families) == counting
        if counting:
            found = {int(sample.labels["size"]): sample.value for sample in families["hakmem_class_free_hits"].samples}
            assert all(found[size] <= 2 * ROUNDS for size in SIZES)


def looked_at(program, env):
    process = blackbox.start([program, str(ROUNDS), "2"], preload=blackbox.LIBRARY, env=env)
    try:
        assert process.stdout.readline() == "ready\n"
        memory = ProcessMemory(process.pid)
        return snapshot(memory, find(memory))
    finally:
        blackbox.stop_session(process)
        process.communicate()


def test_hits_while_the_process_runs(program):
    shot = looked_at(program, COUNTING)
    rows = {row.block_size: row for row in shot.classes}
    found = 0
    for size in SIZES:
        if size in rows:  # a class without a slab has no row
            served, freed = of_mallocs(rows[size].counters), of_frees(rows[size].counters)
            assert (served.hits + served.misses, freed.hits + freed.misses) == (3 * ROUNDS, 3 * ROUNDS), size
            found += 1
    assert found >= 3
    by_name = {part.name: part for part in parts(shot)}
    assert by_name["thread caches, malloc"].rate > 0.99
    assert by_name["slabs"].hits + by_name["slabs"].misses == shot.counters["refills"]
    # Each miss gets a slab from another heap, the reserve or the pool. A batch of large blocks may get more.
    assert 0 < by_name["slabs"].misses <= (shot.counters["warm_hits"] + shot.counters["warm_misses"]
                                           + shot.counters["slabs_adopted"])
    assert by_name["shared pool"].misses >= 1


def test_hits_that_nobody_counts_have_no_figure(program):
    shot = looked_at(program, {"HAKMEM_FRONT_STATS": "0"})
    assert not {"malloc_hits", "free_hits"} & set(shot.counters)
    assert of_mallocs(shot.counters) is None and of_frees(shot.classes[0].counters) is None
    assert all(part.misses >= 0 for part in parts(shot))
