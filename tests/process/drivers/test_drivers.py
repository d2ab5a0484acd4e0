"""Protects the drivers of single subjects: same work on any allocator, wrong allocators and arguments are detected.

The subjects: false sharing, orders of freeing, sizes, messages, uneven threads, growth, calloc, alignment,
fragmentation, idling."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
WRONG = Path(__file__).with_name("wrong_malloc.c")
LOST = "lost its contents"


@dataclass(frozen=True)
class Driver:
    """A small run. `arguments`: name and value, in order. `operations`: their number if the arguments determine it.
    `wrong`: kinds of wrong_malloc.c, and what the driver must say about each."""

    program: str
    arguments: dict
    operations: int | None = None
    wrong: tuple = (("OVERLAP", LOST),)
    counts_bytes: bool = True

    def command(self, linked=False, **changed):
        name = f"{self.program}_hakmem" if linked else self.program
        return [BIN / name, *{**self.arguments, **changed}.values()]


CACHE = {"THREADS": 4, "ITERATIONS": 2000, "SIZE": 8, "WRITES": 5000, "SEED": 7}
DRIVERS = [
    Driver("bench_cache_scratch", CACHE, 4 * (2 * 2000 + 1), (("SCRIBBLE", LOST),), False),
    Driver("bench_cache_thrash", CACHE, 4 * 2 * 2000, (("SCRIBBLE", LOST),), False),
    Driver("bench_batches",
           {"ROUNDS": 60, "ORDER": "mixed", "BATCH": 500, "THREADS": 3, "SEED": 7, "SIZE": 0, "TOUCH": 1, "MS": 0},
           2 * 60 * 500 * 3),
    Driver("bench_pareto", {"ITERATIONS": 60000, "LIVE": 2000, "LONG": 50, "ALPHA": 120, "SEED": 7}),
    Driver("bench_ring", {"THREADS": 4, "MESSAGES": 5000, "HOPS": 3, "SEED": 7}, 2 * 4 * 5000),
    Driver("bench_asymmetric", {"GROUPS": 2, "ROUNDS": 100, "SEED": 7}, 2 * 2 * (100 * 101 + 100 * 100 + 100 + 2000)),
    Driver("bench_vector_growth", {"STEPS": 10000, "LIVE": 24, "LARGEST_KIB": 64, "MODE": "both", "SEED": 7}),
    Driver("bench_calloc_heavy", {"ITERATIONS": 4000, "LIVE": 60, "SEED": 7}, 2 * 4000 - 60,
           (("OVERLAP", LOST), ("CALLOC", "not zero"))),
    Driver("bench_aligned_heavy", {"ITERATIONS": 20000, "LIVE": 500, "SEED": 7}, 2 * 20000 - 500,
           (("OVERLAP", LOST), ("ALIGNMENT", "not aligned"))),
    Driver("bench_fragmentation", {"PHASES": 13, "LIVE_KIB": 512, "SURVIVORS": 20, "SEED": 7}, counts_bytes=False),
    Driver("bench_burst_idle", {"BURSTS": 3, "THREADS": 3, "BURST_KIB": 6000, "IDLE_MS": 20, "KEPT": 10, "SEED": 7},
           counts_bytes=False),
    Driver("larson", {
        "SLEEP": 0, "MIN": 8, "MAX": 128, "CHUNKS": 512, "ROUNDS": 1, "SEED": 7, "THREADS": 3, "TURNS": 0, "OPS": 100001
    }, 100002, counts_bytes=False),
]
each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=[driver.program for driver in DRIVERS])


def result(command, preload=None):
    """The pairs of the RESULT line, which must be the last, after sanity checks."""
    done = blackbox.run(command, preload=preload)
    assert done.status == 0, done.report()
    line = done.stdout.splitlines()[-1]
    assert line.startswith("RESULT "), done.report()
    pairs = dict(pair.split("=") for pair in line.split()[1:])
    ops, seconds = int(pairs["ops"]), float(pairs["seconds"])
    assert ops > 0 and seconds > 0
    # The output has seconds in microseconds.
    assert float(pairs["ns_per_op"]) == pytest.approx(seconds * 1e9 / ops, rel=0.01, abs=0.01 + 1000 / ops)
    assert int(pairs["rss_peak_kib"]) > 500
    for key in ("user_s", "sys_s", "soft_faults", "hard_faults"):
        assert float(pairs[key]) >= 0
    assert done.stderr == ""
    return pairs


def work(pairs):
    """The part that does not depend on the allocator."""
    return {key: pairs[key] for key in ("name", "ops", "bytes", "grown_bytes", "live_kib") if key in pairs}


@each_driver
def test_same_work_on_any_allocator(library, driver):
    """It is the seed that decides."""
    system = work(result(driver.command()))
    assert system == work(result(driver.command(), preload=library))
    assert system == work(result(driver.command(linked=True)))
    assert driver.operations in (None, int(system["ops"]))
    if driver.counts_bytes:
        assert system != work(result(driver.command(SEED=8)))


@pytest.mark.parametrize(
    "driver, kind, said",
    [pytest.param(driver, kind, said, id=f"{driver.program}-{kind}")
     for driver in DRIVERS for kind, said in driver.wrong])
def test_a_wrong_allocator_is_noticed(compiled, driver, kind, said):
    wrong = compiled(WRONG, f"-DWRONG_{kind}", shared=True)
    # The scribbler changes a block each millisecond. Of 20 runs one at least lasts that long.
    for _ in range(20 if kind == "SCRIBBLE" else 1):
        done = blackbox.run(driver.command(), preload=wrong)
        if done.status != 0:
            break
    assert done.status == 1, done.report()
    assert said in done.stderr


@each_driver
def test_only_the_mistake_is_noticed(compiled, driver):
    """The same allocators without a mistake pass, so the driver detects the mistake and nothing else."""
    result(driver.command(), preload=compiled(WRONG, shared=True))


@each_driver
def test_help_names_each_argument(driver):
    done = blackbox.run([BIN / driver.program, "--help"])
    assert done.status == 0 and done.stderr == ""
    assert re.findall(r"\[(\w+)\]", done.stdout.splitlines()[0]) == list(driver.arguments)


@each_driver
def test_wrong_arguments_are_named(driver):
    for name in driver.arguments:
        for value in ("x", "-1", "99999999999999999999999") if driver is DRIVERS[0] else ("x",):
            done = blackbox.run(driver.command(**{name: value}))
            assert done.status == 2, (name, value, done.report())
            assert driver.program in done.stderr and name in done.stderr, done.report()
    done = blackbox.run([*driver.command(), "1"])
    assert done.status == 2 and "usage:" in done.stderr


@pytest.mark.parametrize("order", ["lifo", "fifo", "mixed", "shuffled"])
def test_each_order_frees_all(compiled, order):
    arguments = {"ROUNDS": 20, "ORDER": order, "BATCH": 301, "THREADS": 1, "SEED": 7}
    driver = Driver("bench_batches", arguments)
    assert int(result(driver.command(linked=True))["ops"]) == 20 * 301 * 2
    done = blackbox.run(driver.command(), preload=compiled(WRONG, "-DWRONG_OVERLAP", shared=True))
    assert done.status == 1 and LOST in done.stderr, done.report()


@pytest.mark.parametrize("mode", ["realloc", "copy", "both"])
def test_each_mode_of_growth(mode):
    driver = Driver("bench_vector_growth", {"STEPS": 5000, "LIVE": 8, "LARGEST_KIB": 16, "MODE": mode, "SEED": 7})
    system, ours = result(driver.command()), result(driver.command(linked=True))
    assert work(system) == work(ours)
    # Steps that start or grow a vector are one call, copying steps two, and the end of a vector one.
    assert (5000 < int(system["ops"]) < 7000) if mode == "realloc" else int(system["ops"]) > 6000


def test_pareto_sizes_have_paretos_mean():
    """alpha / (alpha - 1) times the least size of 16 B, less half a byte, because sizes are cut to whole bytes."""
    driver = Driver("bench_pareto", {"ITERATIONS": 400000, "LIVE": 1000, "LONG": 50, "ALPHA": 300, "SEED": 7})
    assert int(result(driver.command())["bytes"]) / 400000 == pytest.approx(24 - 0.5, rel=0.02)


def test_shared_lines_are_counted():
    """glibc gives a thread its handed-over block back, 32 bytes from its neighbour's."""
    arguments = {"THREADS": 8, "ITERATIONS": 1, "SIZE": 8, "WRITES": 1, "SEED": 7}
    assert 4 <= int(result([BIN / "bench_cache_scratch", *arguments.values()])["shared_lines"]) <= 8
    for program in ("bench_cache_scratch", "bench_cache_thrash"):
        assert result([BIN / program, *{**arguments, "THREADS": 1}.values()])["shared_lines"] == "0"


def test_fragmentation_reports_what_is_live(library):
    arguments = {"PHASES": 3, "LIVE_KIB": 1024, "SURVIVORS": 1000, "SEED": 7}
    all_live = result([BIN / "bench_fragmentation", *arguments.values()], preload=library)
    assert 3 * 1024 - 64 <= int(all_live["live_kib"]) <= 3 * 1024 + 64
    assert int(all_live["live_kib"]) < int(all_live["rss_end_kib"]) <= int(all_live["rss_peak_kib"])
    none = result([BIN / "bench_fragmentation", *{**arguments, "SURVIVORS": 0}.values()], preload=library)
    assert none["live_kib"] == "0"


def test_idle_time_is_no_burst_time_and_memory_is_averaged():
    """glibc keeps memory below its top chunk's threshold. A burst of pauses alone holds little on average."""
    begun = time.monotonic()
    pairs = result([BIN / "bench_burst_idle", 3, 2, 20000, 200, 0, 7])
    assert float(pairs["seconds"]) <= time.monotonic() - begun - 3 * 0.2
    assert 500 < int(pairs["rss_mean_kib"]) <= int(pairs["rss_peak_kib"])
    held = result([BIN / "bench_burst_idle", 3, 2, 20000, 200, 1000, 7])
    # 40 MB in the end, held in each pause. Samples lie in bursts as well, when the machine is busy.
    assert int(held["rss_mean_kib"]) > int(pairs["rss_mean_kib"])


def test_larson_takes_one_limit_only():
    for sleep, turns in ((1, 0), (0, 5)):
        done = blackbox.run([BIN / "larson", sleep, 8, 128, 64, 1, 7, 2, turns, 1000])
        assert done.status == 2
        assert all(name in done.stderr for name in ("OPS", "SLEEP", "TURNS"))
