"""Protects every debug counter, by calls whose counts follow from model.py's rules."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import blackbox
from model import Heap, Stack, nonzero

HERE = Path(__file__).resolve().parent
# Only the calls happen: no tick, no other thread.
QUIET = {"HAKMEM_DEBUG_COUNTERS": "1", "HAKMEM_FC_CAP": "8", "HAKMEM_PURGE_THREAD": "never",
         "HAKMEM_PURGE_DELAY": "3600000"}


@pytest.fixture(scope="module")
def program(compiled):
    folder = blackbox.LIBRARY_FOLDER
    return compiled(HERE / "script.c", f"-L{folder}", "-lhakmem", f"-Wl,-rpath,{folder}")


@dataclass(frozen=True)
class Table:
    """The table printed at exit: sums, and rows by class."""

    sums: dict
    rows: dict
    said: list

    def of(self, size):
        return {name: row[size] for name, row in self.rows.items() if size in row}


def count(program, scenario, size=1, number=1, **env):
    result = blackbox.run([program, scenario, size, number], env={**QUIET, **env})
    assert result.status == 0, result.report()
    sums, rows, name = {}, {}, None
    for line in result.stderr.splitlines():
        if found := re.match(r"hakmem: (\w+) +(\d+)  \w", line):
            name = found[1]
            sums[name], rows[name] = int(found[2]), {}
        elif name and re.fullmatch(r"hakmem: \d+: \d+(, \d+: \d+)*", line):
            rows[name] = {int(size): int(number) for size, number in re.findall(r"(\d+): (\d+)", line)}
            assert sum(rows[name].values()) <= sums[name]
    assert "hakmem: debug counters" in result.stderr, result.report()
    return Table(sums, rows, result.stdout.split())


# ---- One thread ----


@pytest.mark.parametrize("size, number", [(8192, 320), (8192, 1), (1280, 999), (1536, 4000), (256, 5000), (16384, 900)])
def test_a_thread_that_allocates_and_frees(program, size, number):
    """Counts refill stages, the warm pool, new pages, and where frees went."""
    table = count(program, "churn", size, number)
    heap = Heap(Stack(size), slabs=int(table.said[1]))
    slabs = [heap.malloc() for _ in range(number)]
    used, left = Counter(slabs + heap.stack.blocks), []
    for slab in slabs:
        left += heap.stack.free(slab)
    assert heap.counts["tls_sll"] == number
    heap.counts["map_local"], heap.counts["mf2_owner_free"] = len(left), number
    used.subtract(left)
    heap.emptied(sum(blocks == 0 for blocks in used.values()))
    assert table.of(size) == nonzero(heap.counts)


@pytest.mark.parametrize("form", ["json", "prometheus"])
def test_statistics_have_what_the_table_has(program, form):
    table = count(program, "churn", 8192, 320)
    result = blackbox.run([program, "churn", 8192, 320],
                          env={**QUIET, "HAKMEM_DEBUG_COUNTERS": "0", "HAKMEM_SHOW_STATS": form})
    assert result.status == 0, result.report()
    sums, rows = {}, {}
    if form == "json":
        for name, counter in json.loads(result.stderr)["debug_counters"].items():
            sums[name] = counter["count"]
            rows[name] = {int(size): number for size, number in counter["by_size"].items()}
    else:
        for family in text_string_to_metric_families(result.stderr):
            for sample in family.samples if family.name == "hakmem_debug_events" else ():
                name, size = sample.labels["event"], sample.labels.get("size")
                sums[name] = sums.get(name, 0) + sample.value
                rows.setdefault(name, {}).update({int(size): sample.value} if size else {})
    assert nonzero(Counter(sums)) == table.sums
    assert {name: row for name, row in rows.items() if row} == {name: row for name, row in table.rows.items() if row}
    assert rows["mf2_new_page"][8192] > 1 and len(sums) > 40


def test_blocks_that_calloc_finds_in_the_cache(program):
    table = count(program, "zeroed_pairs", 2500, 50)
    assert table.of(2560)["early_malloc_cached"] == 49
    assert table.of(2560)["tls_sll"] == table.of(2560)["mf2_owner_free"] == 50


def test_every_free_is_one_of_three(program):
    """Of the thread's own blocks and of another's, small ones past the cache too, spans, and by a dead thread."""
    for scenario, size, number, env in (
            ("churn", 8192, 320, {}), ("churn", 131072, 40, {}), ("remote", 48, 100, {}), ("remote", 8192, 64, {}),
            ("remote", 131072, 20, {}), ("remote", 1536, 400, {"HAKMEM_MF2_ENABLE": "0"}), ("orphan", 1536, 400, {}),
            ("without_cache", 1536, 3, {}), ("churn", 1536, 4000, {"HAKMEM_HEAP_PROFILE_RATE": "1"})):
        if "HAKMEM_HEAP_PROFILE_RATE" in env:
            env = {**env, "HAKMEM_HEAP_PROFILE": "/dev/null"}
        table = count(program, scenario, size, number, **env)
        row = Counter(table.of(size))
        # The owner makes one more pair; of a thread without a cache, one block is freed.
        frees = {"remote": number + 1, "without_cache": 1}.get(scenario, number)
        assert row["tls_sll"] + row["ss_local"] + row["ss_remote"] == frees, scenario
        assert row["mf2_owner_free"] + row["mf2_remote_free"] == frees, scenario


@pytest.mark.parametrize("scenario, number, env, name", [
    ("free_nulls", 7, {}, "early_free_null"),
    ("too_large", 5, {}, "early_malloc_too_large"),
    ("no_blocks", 4, {"HAKMEM_ABORT_ON_MISUSE": "0"}, "early_misuse"),
])
def test_calls_that_end_early(program, scenario, number, env, name):
    before = count(program, "nothing", **env).sums.get(name, 0)
    assert count(program, scenario, 1, number, **env).sums[name] - before == number


def test_huge_blocks(program):
    assert count(program, "churn", 2000000, 9).sums["free_huge"] == 9


def test_an_allocation_that_fails_was_tried_twice(program):
    """The second try follows after everything free was given back."""
    table = count(program, "exhaust", 200000, 3, HAKMEM_MEMORY_LIMIT="64M")
    assert table.of(262144)["refill_failed"] == 6
    spans = table.of(262144)["mf2_new_page"]
    assert spans + 6 == table.of(262144)["refill_pool"]
    # The limit counts a header for each 7 spans, and less than 1 MiB of metadata.
    held = spans * 262144 + -(-spans // 7) * 65536
    assert held <= 64 << 20 < held + (1 << 20) + 262144


def test_a_stack_out_of_use_is_closed(program):
    """Its 4 blocks, from a first refill by half a stack, go back."""
    row = count(program, "disuse", 300, 200).of(320)
    assert (row["cache_grown"], row["cache_shrunk"], row["map_local"]) == (1, 1, 4)


# ---- SuperSlabs ----


def test_superslabs_that_empty_and_leave(program):
    """Spans of 1 MiB take one SuperSlab each, and all SuperSlabs become empty. The cache may hold one span (T7), and
    one waits with the heap until hak_collect (O6)."""
    table = count(program, "superslabs", 1 << 20, 10)
    before, empty_before, held, empty = map(int, table.said)
    assert (before, empty_before) == (0, 0)
    assert table.sums["refill_new_superslab"] == held == 10
    assert table.sums["lru_entered"] == empty == 10 and "lru_reused" not in table.sums
    assert table.sums["lru_purged"] == 10
    assert "lru_evicted" not in table.sums
    assert table.of(1 << 20) == {"refill_pool": 10, "map_local": 10, "mf2_owner_free": 10, "mf2_new_page": 10,
                                 "warm_miss": 10, "warm_prefill": 10, "warm_keep": 1, "warm_release": 9,
                                 "cache_grown": 1, "tls_sll": 10}


def test_more_empty_superslabs_than_may_wait(program):
    table = count(program, "superslabs", 1 << 20, 10, HAKMEM_SS_LRU_SIZE="0")
    assert table.sums["lru_evicted"] == table.sums["lru_purged"] == table.sums["lru_entered"] == 10


@pytest.mark.parametrize("number", [1, 3])
def test_prewarmed_superslabs(program, number):
    """They enter the LRU, and the first slab takes one out."""
    idle = count(program, "nothing", HAKMEM_SS_PREWARM=str(number)).sums
    assert idle["prewarmed"] == idle["lru_entered"] == idle["refill_new_superslab"] == number
    used = count(program, "churn", 3000, 1, HAKMEM_SS_PREWARM=str(number)).sums
    assert used["prewarmed"] == used["refill_new_superslab"] == number and used["lru_reused"] == 1


# ---- Two threads ----


def remote_frees(size, number, most=8):
    """What another thread's frees of a thread's blocks count, for it and for the owner."""
    owner, other, batches = Heap(Stack(size, most)), Stack(size, most), []
    slabs = [owner.malloc() for _ in range(number)]
    closed = size < 64
    for slab in slabs:
        leaving = other.free(slab, closed)
        if leaving:
            batches.append(leaving)
    batches.append(other.blocks)
    other.counts["mf2_remote_free"] = number
    return owner, other, batches


@pytest.mark.parametrize("size, number", [(1536, 400), (1536, 402), (48, 100), (8192, 64), (28672, 40)])
def test_remote_frees(program, size, number):
    owner, other, batches = remote_frees(size, number)
    pending, own = owner.carved, owner.counts
    own["tls_sll"] += 1  # the owner's last pair
    own["mf2_owner_free"] += 1
    other.counts["map_remote"] = number
    other.counts["ss_remote"] = number - other.counts["tls_sll"]
    other.counts["mf2_free_slow"] = other.counts["mf2_pending_enqueued"] = other.counts["mf2_pending_drained"] = pending
    other.counts["mf2_free_fast"] = sum(len(set(batch)) for batch in batches) - pending
    table = count(program, "remote", size, number)
    row = table.of(size)
    again = not owner.stack.blocks  # the owner's next call misses, and collects
    assert row.get("refill_remote_drain", 0) == again
    expected = nonzero(own, other.counts)
    for name in ("mf2_remote_free", "mf2_owner_free", "ss_remote", "map_remote", "mf2_free_fast", "mf2_free_slow",
                 "mf2_pending_enqueued", "mf2_pending_drained", "early_free_closed", "tls_sll"):
        assert row.get(name, 0) == expected.get(name, 0), name
    if not again:
        own["warm_release"] = owner.carved - len(set(owner.stack.blocks))  # collected when the thread has ended
        assert row == nonzero(own, other.counts)
    assert "map_locked" not in row and "mf2_orphan_drained" not in table.sums


def test_remote_frees_under_the_owners_lock(program):
    """For spans, and for all blocks without MF2."""
    for size, number, most, env in ((131072, 20, 4, {}), (1536, 400, 8, {"HAKMEM_MF2_ENABLE": "0"})):
        row = count(program, "remote", size, number, **env).of(size)
        assert row["map_locked"] == row["mf2_remote_free"] == number
        assert not {"map_remote", "mf2_free_slow", "mf2_free_fast", "mf2_pending_enqueued"} & set(row)


def test_remote_frees_to_a_thread_that_has_died(program):
    """Nobody will collect them, so a thread that pushes a slab into its queue empties it at once. No batch is fast."""
    owner, other, batches = remote_frees(1536, 400)
    pushed = sum(len(set(batch)) for batch in batches)
    table = count(program, "orphan", 1536, 400)
    row = table.of(1536)
    assert row["mf2_free_slow"] == row["mf2_pending_enqueued"] == row["mf2_pending_drained"] == pushed
    assert table.sums["mf2_orphan_drained"] == pushed
    assert "mf2_free_fast" not in row and row["map_remote"] == 400
    assert row["warm_release"] == owner.carved - len(set(owner.stack.blocks))


def test_a_slab_of_a_dead_thread_is_adopted(program):
    row = count(program, "adopt_orphan", 1536, 20).of(1536)
    assert row["mf2_adopted_orphan"] == row["refill_adopted"] == row["mf2_new_page"] == 1
    assert "mf2_adopted_idle" not in row


def test_a_slab_of_an_idle_thread_is_adopted(program):
    """One of a slab's 2 blocks was freed. The first look notes that the thread is silent. The second takes a slab and
    collects what is pending, so nothing is left for more looks."""
    row = count(program, "adopt_idle", 28672, 20, HAKMEM_MF2_ENQUEUE_THRESHOLD="1").of(28672)
    assert row["mf2_adopted_idle"] == row["refill_adopted"] == 1
    assert row["mf2_pending_drained"] == row["mf2_pending_enqueued"] == row["mf2_free_slow"] == 10


def test_a_thread_that_begins_with_a_dead_threads_cache(program):
    row = count(program, "in_turn", 1536, 5).of(1536)
    assert row["early_malloc_cached"] == 4 and row["mf2_new_page"] == 1


def test_a_thread_without_a_cache(program):
    row = count(program, "without_cache", 1536, 3).of(1536)
    assert (row["early_free_house"], row["early_malloc_house"]) == (1, 3)
    assert row["mf2_remote_free"] == row["ss_remote"] == row["map_remote"] == 1
