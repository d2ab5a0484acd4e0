"""Protects hakmem bench batches: the grid, its tables, and the refusal of wrong command lines."""

import re

import pytest
import tool

from hakmem.bench import batches
from hakmem.units import bytes_exact

FEW = ("--sizes", "64,32K", "--numbers", "100", "--orders", "shuffled", "--ms", "1")


def grid(folder, *arguments):
    return tool.run(folder, "bench", "batches", "--warm", 1, "--out", folder, *arguments)


def test_the_whole_grid():
    cells, left_out = batches.grid()
    assert len({cell.name
                for cell in cells}) == len(cells) == (len(batches.SIZES) * len(batches.NUMBERS) - len(left_out)) * 6
    assert max(cell.size * cell.number for cell in cells) <= 2048 << 20 < min(cell.size * cell.number
                                                                              for cell in left_out)
    assert {cell.size
            for cell in cells} == set(batches.SIZES) and batches.SIZES[0] == 16 and batches.SIZES[-1] == 4 << 20
    assert {cell.number for cell in cells} == {10, 100, 1000, 10000, 100000}


@pytest.mark.parametrize("text, size", [("16", 16), ("4K", 4096), ("4KiB", 4096), ("1m", 1 << 20), ("24B", 24)])
def test_sizes(text, size):
    assert batches.parse_size(text) == size
    assert batches.parse_size(bytes_exact(size)) == size


def test_tables_show_the_medians(tmp_path):
    done = grid(tmp_path, *tool.TWO, *FEW, "--rounds", 2)
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    assert len(result["rows"]) == 4 and len(result["samples"]) == 4 * 3 * 2
    entries = result["summary"]["rows"]["32KiB-100-shuffled-untouched"]
    table = done.stdout.split("freed shuffled, blocks not touched\n")[1]
    shown = [
        float(word.replace(",", ""))
        for word in re.search(r"^32 KiB x 100 +(\S+) +(\S+)", table, re.MULTILINE).groups()
    ]
    for figure, name in zip(shown, ("hakmem", "glibc")):
        assert figure == pytest.approx(2 * entries[name]["ns_per_op"], rel=0.01, abs=0.6)


def test_instructions_and_a_yardstick(tmp_path, library):
    """A library under mimalloc's name: the same library takes the same instructions."""
    done = grid(tmp_path, "--allocators", "hakmem", "--add", f"mimalloc3={library}", "--sizes", "64,1M", "--numbers",
                "100", "--orders", "fifo", "--touch", "yes", "--most", 50, "--instructions")
    assert done.status == 0, done.report()
    row = re.search(r"^64 B x 100 +([\d.]+) +([\d.]+) +1.00 +1.00 mimalloc3$", done.stdout, re.MULTILINE)
    assert row and float(row[1]) == pytest.approx(float(row[2]), rel=0.01) and 30 < float(row[1]) < 300
    assert "1 MiB x 100" in done.stdout and "50 MiB" in done.stdout, "what was left out"


@pytest.mark.parametrize("arguments, message", [
    (["--sizes", "64X"], "'64X'"),
    (["--sizes", "2048M"], "'2048M'"),
    (["--numbers", "0"], "'0'"),
    (["--orders", "up"], "'up'"),
    (["--sizes", "1M", "--numbers", "100", "--most", "50"], "--most 50"),
    (["--instructions", "--csv"], "--instructions"),
    (["--name", "a/b"], "--name a/b"),
    (["--allocators", "nosuch"], "nosuch"),
])
def test_mistakes_are_named(tmp_path, arguments, message):
    status, said = tool.refused(tmp_path, "bench", "batches", "--warm", 1, "--out", tmp_path, *arguments)
    assert status == 2 and message in said, said
