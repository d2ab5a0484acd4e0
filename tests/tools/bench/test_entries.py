"""Protects hakmem bench entries: every entry point at every size, by time and by instructions."""

import re
import subprocess

import blackbox
import pytest
import tool

from hakmem.bench.entries_command import ENTRIES, SIZES, Cell

PROGRAM = tool.BUILD / "bin/bench_entries"
OURS = {"hak_usable_size", "sdallocx", "nallocx", "sallocx", "free_sized"}


def table(*arguments):
    return ("bench", "entries", "--warm", 1, *arguments)


def operations(library, *arguments):
    """The operations that the driver reports on a library, None for the system's."""
    done = blackbox.run([PROGRAM, *map(str, arguments)], preload=library)
    assert done.status == 0, done.report()
    return int(re.search(r"^RESULT .*\bops=(\d+)", done.stdout, re.MULTILINE)[1])


def test_rows_are_the_drivers():
    """The driver knows each entry point, and the command measures each of the driver's but delete, which is new's."""
    said = subprocess.run([PROGRAM, "none"], capture_output=True, text=True, env=blackbox.environment(), check=False)
    assert said.returncode == 2
    known = set(re.findall(r"[a-z]\w+", said.stderr)) & ({"delete"} | set(ENTRIES))
    assert known == {"delete"} | set(ENTRIES)
    assert SIZES[0] == 8 and SIZES[-1] == 16 << 20
    names = {Cell(entry, size, live).name for entry in ENTRIES for size in SIZES for live in (1, 100)}
    assert len(names) == len(ENTRIES) * len(SIZES) * 2


@pytest.mark.parametrize("entry", [*ENTRIES, "delete"])
def test_each_entry_point_makes_its_calls(library, entry):
    """On HAKMEM each is there; an allocator that lacks one makes none of its calls."""
    assert operations(library, entry, 5000, 200, 50) == 200
    assert operations(library, entry, 8, 10) == 10
    assert operations(None, entry, 64, 10) == (0 if entry in OURS else 10)


def test_a_table_of_times(tmp_path):
    done = tool.run(tmp_path, *table("--no-calls", "--out", tmp_path, *tool.TWO, "--rows", "^calloc$", "--rows",
                                     "^nallocx$", "--sizes", "64,64K", "--live", 3, "--rounds", 1))
    assert done.status == 0, done.report()
    rows = tool.only_result(tmp_path)["summary"]["rows"]
    assert list(rows) == ["calloc-64B-x3", "calloc-64KiB-x3", "nallocx-64B-x3", "nallocx-64KiB-x3"]
    shown = re.findall(r"^64 B +(\S+) +(\S+) +(\S+.*)$", done.stdout, re.MULTILINE)
    assert [line[1] == "-" for line in shown] == [False, True], done.stdout
    own = rows["calloc-64B-x3"]["hakmem"]["ns_per_op"]
    assert float(shown[0][0].replace(",", "")) == pytest.approx(own, rel=0.01, abs=0.06)


def test_instructions_of_a_lookup(tmp_path, library):
    """The same library under a peer's name takes the same instructions, and a lookup takes fewer than a hundred."""
    done = tool.run(tmp_path, *table("--allocators", "hakmem", "--add", f"mimalloc3={library}", "--rows",
                                     "^malloc_usable_size$", "--sizes", "64", "--instructions"))
    assert done.status == 0, done.report()
    found = re.search(r"^64 B +([\d.]+) +([\d.]+) +[\d.]+ mimalloc3$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert float(found[1]) == pytest.approx(float(found[2]), rel=0.01) and 5 < float(found[1]) < 100, done.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--rows", "no such entry"], "no such entry"),
    (["--rows", "("], "--rows"),
    (["--sizes", "4"], "4"),
    (["--live", "0"], "--live"),
    (["--instructions", "--csv"], "--csv"),
])
def test_wrong_command_lines(tmp_path, arguments, message):
    status, said = tool.refused(tmp_path, "bench", "entries", "--out", tmp_path, *arguments)
    assert status == 2 and message in said, said
