"""Protects the drivers of many threads and of random access to a large heap: work, memory figures, wrong arguments."""

import os
import re
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
HERE = Path(__file__).parent
THREADS, ACCESS = BIN / "bench_many_threads", BIN / "bench_random_access"


def pairs_of(done):
    assert done.status == 0, done.report()
    line = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    return {
        key: float(value) if key != "name" else value for key, value in (pair.split("=") for pair in line[1].split())
    }


def test_threads_do_the_same_work(library):
    command = [THREADS, 40, 30, 5, 7, 0, 3]
    runs = [pairs_of(blackbox.run(argv, preload=preload)) for argv, preload in (
        (command, None), (command, library), ([Path(f"{command[0]}_hakmem"), *command[1:]], None))]
    # Of 30 blocks 15 are freed. A turn frees and allocates 7.
    assert [run["ops"] for run in runs] == [40 * (30 + 15 + 5 * 7 * 2)] * 3
    assert len({run["thread_live_bytes"] for run in runs}) == 1
    assert all(run["thread_held_bytes"] > run["thread_live_bytes"] / 2 for run in runs)


def test_what_a_thread_holds_is_its_own(library):
    """The figure includes live blocks, and excludes stacks and the threads' start."""
    few, many = (pairs_of(blackbox.run([THREADS, 100, blocks, 2, 4, 100], preload=library)) for blocks in (8, 400))
    assert many["thread_live_bytes"] > 20 * few["thread_live_bytes"]
    assert many["thread_held_bytes"] - few["thread_held_bytes"] > 0.8 * (many["thread_live_bytes"] -
                                                                         few["thread_live_bytes"])
    assert few["thread_later_bytes"] < 1 << 20


def test_the_heap_is_as_large_as_asked_for(library):
    """Under HAKMEM_THP=never no page is huge, and the system's malloc requests no huge pages."""
    small, large = (pairs_of(blackbox.run([ACCESS, mib, 20000, 25, 7], preload=library, env={"HAKMEM_THP": "never"}))
                    for mib in (8, 40))
    assert small["ops"] == large["ops"] == 20000
    for mib, told in ((8, small), (40, large)):
        assert mib * 1024 * 0.97 < told["live_kib"] < mib * 1024 * 1.03 and told["live_kib"] < told["rss_peak_kib"]
        assert told["thp"] == 2 or told["huge_kib"] == told["huge_percent"] == 0
        # A step reads a block's size: 64 to 1,024.
        assert 500 < told["checksum"] / 20000 < 590
    system = pairs_of(blackbox.run([ACCESS, 8, 20000, 25, 7]))
    assert (system["live_kib"], system["checksum"]) == (small["live_kib"], small["checksum"])


def test_huge_pages_are_told(library):
    """HAKMEM requests huge pages for a heap of 128 MiB. If the kernel has some, the driver reports them."""
    told = pairs_of(blackbox.run([ACCESS, 128, 1000], preload=library))
    assert told["huge_kib"] <= told["rss_peak_kib"]
    assert int(told["huge_kib"] * 100 / told["rss_peak_kib"]) <= told["huge_percent"] <= 100
    assert told["thp"] in (0, 1, 2)
    if told["thp"] == 0:
        assert told["huge_kib"] == 0


@pytest.mark.parametrize("command", [[THREADS, 20, 50, 3, 40, 0], [ACCESS, 4, 1000, 100]], ids=["threads", "access"])
def test_a_wrong_allocator_is_noticed(compiled, command):
    right = blackbox.run(command, preload=compiled(HERE / "wrong_malloc.c", "-DWRONG_NONE", shared=True))
    assert right.status == 0, right.report()
    wrong = blackbox.run(command, preload=compiled(HERE / "wrong_malloc.c", "-DWRONG_OVERLAP", shared=True))
    assert wrong.status in (1, -11), wrong.report()
    assert wrong.status == -11 or "lost its contents" in wrong.stderr


@pytest.mark.parametrize("command, named", [
    (["bench_many_threads", "0"], "THREADS"),
    (["bench_many_threads", "16384", "1000"], "BLOCKS"),
    (["bench_many_threads", "1", "1", "0"], "TURNS"),
    (["bench_many_threads", "1", "1", "1", "x"], "ONCE"),
    (["bench_many_threads", "1", "1", "1", "1", "-1"], "IDLE_MS"),
    (["bench_many_threads", "1", "1", "1", "1", "1", "1", "1"], "usage"),
    (["bench_random_access", "0"], "MIB"),
    (["bench_random_access", "1", ""], "ACCESSES"),
    (["bench_random_access", "1", "1", "1001"], "CHURN"),
    (["bench_random_access", "1", "1", "1", "x"], "SEED"),
])
def test_wrong_arguments_are_named(command, named):
    done = blackbox.run([BIN / command[0], *command[1:]])
    assert done.status == 2, done.report()
    assert named in done.stderr and command[0] in done.stderr
