"""Protects bench_batches with blocks of one size: the order of frees, the timing, and blocks that check themselves."""

import os
import re
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
PROGRAM = BIN / "bench_batches"
HERE = Path(__file__).parent
VERIFIED = {"BENCH_VERIFY": "1"}


def pairs_of(done):
    assert done.status == 0, done.report()
    line = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    return dict(pair.split("=") for pair in line[1].split())


@pytest.mark.parametrize("order, wanted", [
    ("fifo", [0, 1, 2, 3, 4, 5]),
    ("lifo", [5, 4, 3, 2, 1, 0]),
    ("mixed", [0, 2, 4, 5, 3, 1]),
    ("shuffled", None),
])
def test_the_order_of_the_frees(compiled, order, wanted):
    """The first of two rounds is not timed. A block's number is the order of its malloc."""
    spy = compiled(HERE / "order.c", shared=True)
    done = blackbox.run([PROGRAM, 1, order, 6, 1, 42, 4242], preload=spy)
    assert pairs_of(done)["ops"] == "12"
    numbers = [int(word) for word in re.search(r"^FREED(.*)$", done.stdout, re.MULTILINE)[1].split()]
    first, second = numbers[:6], [number - 6 for number in numbers[6:]]
    assert first == second and sorted(first) == list(range(6))
    if wanted is None:
        assert first not in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])
        other = blackbox.run([PROGRAM, 0, order, 6, 1, 43, 4242], preload=spy)
        assert "FREED " + " ".join(map(str, first)) + "\n" not in other.stdout
    else:
        assert first == wanted


@pytest.mark.parametrize("order", ["fifo", "shuffled"])
def test_a_wrong_allocator_is_noticed(compiled, order):
    command = [PROGRAM, 3, order, 300, 2, 42, 600]
    done = blackbox.run(command, preload=compiled(HERE / "wrong_malloc.c", "-DWRONG_OVERLAP", shared=True),
                        env=VERIFIED)
    assert done.status == 1 and "lost its contents" in done.stderr, done.report()
    right = blackbox.run(command, preload=compiled(HERE / "wrong_malloc.c", shared=True), env=VERIFIED)
    assert pairs_of(right)["ops"] == str(2 * 3 * 300 * 2)


def test_blocks_are_written_only_where_it_is_asked_for():
    """A hundred blocks of 1 MiB on glibc, which maps each: glibc touches a page of each block, and the driver a second
    one only where malloc's header is elsewhere. So the process stays small, and below 2 MiB THP does not matter."""
    touched, bare = (pairs_of(blackbox.run([PROGRAM, 2, "fifo", 100, 1, 42, 1 << 20, touch])) for touch in (1, 0))
    assert touched["bytes"] == bare["bytes"] == str(2 * 100 << 20)
    assert int(touched["rss_peak_kib"]) < 20000 and int(bare["rss_peak_kib"]) < 20000


def test_the_time_ends_it():
    done = pairs_of(blackbox.run([PROGRAM, 1 << 40, "lifo", 1000, 2, 42, 64, 1, 30]))
    assert 0.025 < float(done["seconds"])
    assert int(done["ops"]) % 2000 == 0 and int(done["ops"]) < 1 << 32


def test_threads_do_the_same_work(library):
    for threads in (1, 3):
        done = pairs_of(blackbox.run([PROGRAM, 5, "shuffled", 200, threads, 42, 48], preload=library))
        assert done["ops"] == str(2 * 5 * 200 * threads)
