"""Protects snapshots read from outside: they match the program's own counts."""

import os
import signal
import subprocess

import pytest
from conftest import HERE

from hakmem.foreign import open_regular
from hakmem.live import ProcessMemory, find, find_all, snapshot
from hakmem.live.descriptor import NotHakmem, offset_in_file
from hakmem.live.heap import Reader

MIB = 1 << 20
# (requested size, block size of its class, number)
SMALL = [(3000, 3072, 5000), (700, 768, 777), (20000, 20480, 40), (100000, 131072, 9)]


def look(program):
    shot = snapshot(ProcessMemory(program.pid))
    assert shot.totals.mapped == shot.totals.sum
    return shot


def live(shot):
    """Live blocks by block size. A class that is not in use has none."""
    return {row.block_size: row.live_blocks for row in shot.classes}


def grown(before, after, size):
    return live(after).get(size, 0) - live(before).get(size, 0)


def unit_at(shot, address):
    """The unit of the snapshot that contains the address."""
    for superslab in shot.superslabs:
        number, rest = divmod(address - superslab.address, shot.unit_size)
        if 0 <= number <= len(superslab.units) and rest >= 0:
            return superslab.units[number - 1]
    raise AssertionError(f"{address:#x} is in no SuperSlab")


def check_known(program):
    """Takes and drops known numbers of blocks. The snapshot must see exactly these."""
    before = look(program)
    for size, block, count in SMALL:
        address, usable = map(int, program.ask("take", size, count))
        assert usable == block
        unit = unit_at(look(program), address)
        assert (unit.state, unit.block_size) == ("active", block)
    after = look(program)
    for _, block, count in SMALL:
        assert grown(before, after, block) == count
        row = next(row for row in after.classes if row.block_size == block)
        assert (row.live_blocks + row.cached_blocks + row.free_blocks) % row.slabs == 0, "whole slabs"
    for size, block, count in SMALL:
        freed = int(program.ask("drop", size, 3)[0])
        assert freed == (count + 2) // 3
        assert grown(before, look(program), block) == count - freed
    for block, count in program.held().items():
        assert grown(before, look(program), block) == count


def test_known_numbers(known):
    check_known(known())


def test_huge_blocks(known):
    program = known()
    before = look(program)
    addresses = [int(program.ask("take", size, 1)[0]) for size in (5 * MIB, 7 * MIB, 3 * MIB)]
    shot = look(program)
    assert shot.totals.huge_live - before.totals.huge_live == 15 * MIB
    assert shot.totals.huge_blocks - before.totals.huge_blocks == 3
    assert {block.address: block.bytes for block in shot.huge if block.live} == dict(
        zip(addresses, (5 * MIB, 7 * MIB, 3 * MIB), strict=True))
    program.ask("drop", 7 * MIB, 1)
    shot = look(program)
    assert shot.totals.huge_live - before.totals.huge_live == 8 * MIB
    kept = [block for block in shot.huge if not block.live]
    assert sum(block.bytes for block in kept) == shot.totals.huge_cached == 7 * MIB
    assert kept[0].address == addresses[1]


def as_mallinfo(shot):
    """A snapshot's totals, in the form of the program's mallinfo2 figures."""
    totals = shot.totals
    return [
        totals.mapped - totals.huge_live, totals.huge_blocks, totals.huge_live,
        totals.live - totals.huge_live + totals.metadata, totals.cached + totals.free_in_slab + totals.retained,
        totals.cached, totals.retained - totals.purged,
        sum(row.cached_blocks + row.free_blocks for row in shot.classes)
    ]


def test_agrees_with_the_library(known):
    """Checks every figure of mallinfo2, which the library counts itself under its locks."""
    program = known(env={"HAKMEM_PURGE_DELAY": "3600000"})
    for size, _, count in SMALL:
        program.ask("take", size, count)
    program.ask("leave", 500, 1000)
    program.ask("drop", 3000, 2)
    program.ask("drop", 500, 3)
    program.ask("take", 5 * MIB, 2)
    program.ask("take", 3 * MIB, 1)
    program.ask("drop", 3 * MIB, 1)
    told = list(map(int, program.ask("info")))
    shot = look(program)
    totals = shot.totals
    assert told == as_mallinfo(shot)
    assert totals.cached > 0 and totals.huge_live == 10 * MIB and totals.huge_cached == 3 * MIB


@pytest.mark.parametrize("rate", [1, 1 << 40])
def test_agrees_with_the_library_while_it_is_profiled(known, tmp_path, rate):
    """To the byte as the library: blocks in runs count as cached, and the profile's own tables as metadata. Threads
    take from runs while they count bytes to the next sample, which one of a TiB never comes here."""
    program = known(env={"HAKMEM_PURGE_DELAY": "3600000", "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"),
                         "HAKMEM_HEAP_PROFILE_RATE": str(rate)})
    for size, _, count in SMALL:
        program.ask("take", size, count)
        program.ask("drop", size, 3)
    program.ask("leave", 500, 1000)
    program.ask("thread", 200, 1000)
    program.ask("take", 3 * MIB, 2)
    told = list(map(int, program.ask("info")))
    shot = look(program)
    totals = shot.totals
    assert told == as_mallinfo(shot)
    if rate == 1:
        assert totals.heap_profile > 400 * 1024 and [row.kind for row in shot.threads].count("profile") == 1
    else:
        assert blocks_in_runs(program) > 0
    assert sum(row.live_bytes for row in shot.threads) == totals.live - totals.huge_live
    assert sum(row.cached_bytes for row in shot.threads) == totals.cached == sum(row.cached_bytes
                                                                                 for row in shot.classes)


def blocks_in_runs(program):
    """The number of blocks in runs, from which threads take while their calls are counted."""
    reader = Reader(ProcessMemory(program.pid), find(ProcessMemory(program.pid)))
    reader.snapshot()
    runs, blocks = reader.descriptor.fields["thread_cache.runs"], 0
    for heap in reader.heaps:
        if heap["kind"] == reader.constant["HEAP_THREAD"] and heap["cache"] and not heap["cache_purged"]:
            tops = reader.descriptor.picker("bin", "top").columns(
                reader.memory.read(heap["cache"] + runs.offset, runs.size * runs.count))["top"]
            blocks += sum(top - reader.run_of(class_id)[0] for class_id, top in enumerate(tops[:reader.class_count]))
    return blocks


def test_threads(known):
    program = known()
    waiting, gone = int(program.ask("thread", 3000, 50)[0]), int(program.ask("leave", 700, 60)[0])
    shot = look(program)
    threads = {row.tid: row for row in shot.threads if row.tid}
    assert set(threads) == {program.pid, waiting}
    assert threads[waiting].live_bytes == 50 * 3072
    assert threads[waiting].state == "live" and threads[waiting].name.startswith("known-")
    orphans = [row for row in shot.threads if row.kind == "thread" and row.state == "orphan"]
    assert [row.live_bytes for row in orphans] == [60 * 768]
    assert gone not in threads
    assert sum(row.live_bytes for row in shot.threads) == shot.totals.live - shot.totals.huge_live
    assert sum(row.cached_bytes for row in shot.threads) == shot.totals.cached
    assert shot.counters["refills"] == sum(row.counters["refills"] for row in shot.threads) > 2


def test_what_is_given_back_is_seen(known):
    program = known(env={"HAKMEM_PURGE_DELAY": "1"})
    program.ask("take", 3000, 20000)
    full = look(program)
    program.ask("drop", 3000, 1)
    program.ask("collect")
    empty = look(program)
    assert full.totals.live - empty.totals.live == 20000 * 3072
    assert empty.totals.purged - full.totals.purged > 0.9 * 20000 * 3072
    assert sum(pool.superslabs for pool in empty.pools) == len(empty.superslabs) == empty.totals.superslabs
    assert next(pool for pool in empty.pools if pool.tier == "EMPTY").superslabs > 20
    states = [unit.state for superslab in empty.superslabs for unit in superslab.units]
    assert states.count("untouched") > 0.9 * len(states)


def test_while_threads_run(churn):
    """No snapshot fails or contradicts itself, and the program goes on."""
    memory = ProcessMemory(churn.pid)
    descriptor = find(memory)
    looks = refills = 0
    while looks < 30 or refills <= 1000:
        shot = snapshot(memory, descriptor)
        totals = shot.totals
        assert totals.mapped == totals.sum
        assert min(totals.live, totals.cached, totals.free_in_slab, totals.retained, totals.metadata) >= 0
        assert sum(row.live_bytes for row in shot.classes) == totals.live - totals.huge_live
        assert shot.counters["refills"] >= refills
        looks, refills = looks + 1, shot.counters["refills"]
    assert churn.process.poll() is None


@pytest.mark.parametrize("how", ["dynamic", "static", "stripped", "headless"])
def test_linked_into_the_program(start, compiled, override_archive, tmp_path, how):
    """The descriptor of a program that contains HAKMEM is found by its symbol's section, or by its magic alone."""
    flags = ["-Wl,--gc-sections", "-Wl,--undefined=malloc", override_archive, "-pthread"]
    program = tmp_path / how
    program.write_bytes(compiled(HERE / "known.c", *([] if how == "dynamic" else ["-static"]), *flags).read_bytes())
    program.chmod(0o755)
    if how in ("stripped", "headless"):
        subprocess.run(["strip", "-s", program], check=True)
    if how == "headless":
        image = bytearray(program.read_bytes())
        image[40:48], image[58:64] = bytes(8), bytes(6)  # e_shoff; e_shentsize, e_shnum, e_shstrndx
        program.write_bytes(image)
    with open_regular(program) as file:
        assert offset_in_file(file) is not None
    check_known(start([program]))


def test_a_file_that_is_gone(start, compiled, library, tmp_path):
    """A library that was replaced on the disk is found through /proc/PID/map_files, or in memory."""
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(library.read_bytes())
    program = start([compiled(HERE / "known.c")], copy)
    copy.unlink()
    check_known(program)


@pytest.mark.parametrize("copy_first", [False, True])
def test_two_copies(start, compiled, library, tmp_path, copy_first):
    """Both copies are found, and the one that serves malloc is shown."""
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(library.read_bytes())
    program = start([compiled(HERE / "known.c")], [copy, library] if copy_first else [library, copy])
    program.ask("take", 3000, 100)
    memory = ProcessMemory(program.pid)
    assert len(find_all(memory)) == 2
    served = str(copy if copy_first else library.resolve())
    address = find(memory).address
    assert [one.path for one in memory.mappings() if one.start <= address < one.end] == [served]
    assert live(look(program))[3072] == 100


def test_a_copy_that_is_only_mapped(known, library, tmp_path):
    """As by a profiler that reads the file. Its addresses are those of the file."""
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(library.read_bytes())
    program = known()
    program.ask("take", 3000, 100)
    assert program.ask("code", copy) == ["1"]
    assert len(find_all(ProcessMemory(program.pid))) == 1
    assert live(look(program))[3072] == 100


def test_a_process_that_only_maps_it(start, compiled, library):
    """It runs on glibc."""
    program = start([compiled(HERE / "known.c")])
    assert program.ask("code", library) == ["1"]
    with pytest.raises(NotHakmem, match=f"{program.pid}"):
        look(program)


def test_a_stopped_program(known):
    program = known()
    program.ask("take", 3000, 10)
    before = look(program)
    os.kill(program.pid, signal.SIGSTOP)
    first, second = look(program), look(program)
    os.kill(program.pid, signal.SIGCONT)
    assert first.totals == second.totals == before.totals
    assert [row.__dict__ for row in first.threads] == [row.__dict__ for row in second.threads]
