"""Protects the patterns of the source documents and of shbench: the requests are those in the documents."""

import os
import re
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
HERE = Path(__file__).parent
KIB = 1024
# Sizes in order, how many blocks of each are in a list, and the list's length.
PATTERNS = {
    "json": ({64 * KIB: 1000}, 1000),
    "mir": ({256 * KIB: 100}, 100),
    "mixed": ({16: 200, 512: 200, 8 * KIB: 200, 128 * KIB: 200, KIB: 200}, 1000),
    "mf2": ({2 * KIB: 1000, 4 * KIB: 1000, 8 * KIB: 1000, 16 * KIB: 1000, 32 * KIB: 1000}, 5000),
}
PROGRAM = BIN / "bench_documents"


def pairs_of(done):
    assert done.status == 0, done.report()
    line = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    return dict(pair.split("=") for pair in line[1].split())


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("held", [0, 1, 7])
def test_sizes_and_what_is_held(compiled, pattern, held):
    """One list before the clock starts and one after. Printing allocates a few more blocks, also of 4 KiB."""
    sizes, blocks = PATTERNS[pattern]
    done = blackbox.run([PROGRAM, pattern, 1, held], preload=compiled(HERE / "sizes.c", "-O2", shared=True))
    pairs = pairs_of(done)
    assert pairs["name"] == pattern and pairs["ops"] == str(2 * blocks)
    assert int(pairs["bytes"]) == sum(size * count for size, count in sizes.items())
    told = {
        int(size): int(count) for size, count in re.findall(r"(\d+)x(\d+)",
                                                            re.search(r"^SIZES(.*)$", done.stdout, re.M)[1])
    }
    assert [size for size in told if size in sizes] == list(sizes)
    assert all(2 * count <= told[size] <= 2 * count + 10 for size, count in sizes.items())
    most = int(re.search(r"^HELD (\d+)$", done.stdout, re.M)[1])
    wanted = held or blocks
    assert wanted <= most <= wanted + len(told) - len(sizes)


@pytest.mark.parametrize("touch, written_kib", [(0, 0), (1, 400), (2, 100 * 256)])
def test_touching(touch, written_kib):
    """glibc maps blocks of 256 KiB, and writes a header on each block's first page: 400 KiB for 100 blocks. The program
    and its libraries have at most 12 MB."""
    peak = int(pairs_of(blackbox.run([PROGRAM, "mir", 1, 0, touch]))["rss_peak_kib"])
    assert max(400, written_kib) < peak < max(400, written_kib) + 12000


def test_a_wrong_allocator_is_noticed(compiled):
    for kind, status in (("-DWRONG_OVERLAP", 1), ("-DRIGHT", 0)):
        wrong = compiled(HERE / "wrong_malloc.c", kind, shared=True)
        for command in ([PROGRAM, "mixed", 20], [BIN / "bench_shbench", 20, 1000, 2, 42]):
            done = blackbox.run(command, preload=wrong, env={"BENCH_VERIFY": "1"})
            assert done.status == status, done.report()
            assert status == 0 or "lost its contents" in done.stderr


def test_the_same_work_on_any_allocator(library):
    for command in ([PROGRAM, "mf2", 3], [BIN / "bench_shbench", 50, 2000, 2, 7]):
        runs = [pairs_of(blackbox.run(argv, preload=preload)) for argv, preload in (
            (command, None), (command, library), ([Path(f"{command[0]}_hakmem"), *command[1:]], None))]
        assert len({(run["ops"], run["bytes"]) for run in runs}) == 1 and int(runs[0]["ops"]) > 10000
    other = pairs_of(blackbox.run([BIN / "bench_shbench", 50, 2000, 2, 8]))
    assert other["bytes"] != runs[0]["bytes"]


def test_shbench_takes_small_blocks_more_often():
    small, large = (pairs_of(blackbox.run([BIN / "bench_shbench", 100, largest])) for largest in (100, 10000))
    assert int(small["bytes"]) / int(small["ops"]) < 40 < int(large["bytes"]) / int(large["ops"])


@pytest.mark.parametrize("command, named", [
    (["bench_documents", "xml"], "'xml'"),
    (["bench_documents", "json", "-1"], "ITERATIONS"),
    (["bench_documents", "json", "1", "5001"], "HELD"),
    (["bench_documents", "json", "1", "0", "3"], "TOUCH"),
    (["bench_documents", "json", "1", "0", "1", "1"], "usage"),
    (["bench_shbench", "x"], "ROUNDS"),
    (["bench_shbench", "1", "0"], "LARGEST"),
    (["bench_shbench", "1", "1", "0"], "THREADS"),
    (["bench_shbench", "1", "1", "1", ""], "SEED"),
])
def test_wrong_arguments_are_named(command, named):
    done = blackbox.run([BIN / command[0], *command[1:]])
    assert done.status == 2, done.report()
    assert named in done.stderr and command[0] in done.stderr
