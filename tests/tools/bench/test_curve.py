"""Protects hakmem bench curve: a point for each delay, and the points that no other beats."""

import pytest
import tool

from hakmem.bench.curve_command import Point, beaten_by


def curve(folder, *arguments):
    return tool.run(folder, "bench", "curve", "--warm", 1, "--no-calls", "--out", folder, *arguments)


def test_delays_reach_the_allocator(tmp_path):
    """Without a delay memory goes back at once and is faulted in again."""
    done = curve(tmp_path, *tool.TWO, "--rows", "^big-1-16MiB$", "--scale", 0.3, "--delays", "0,10000", "--rounds", 1)
    assert done.status == 0, done.report()
    entries = tool.only_result(tmp_path)["summary"]["rows"]["big-1-16MiB"]
    assert set(entries) == {"glibc", "hakmem", "hakmem@0", "hakmem@10000", "hakmem-again"}
    assert entries["hakmem@0"]["soft_faults"] > 2 * entries["hakmem@10000"]["soft_faults"]
    for name in ("glibc", "hakmem", "hakmem@0", "hakmem@10000"):
        assert f"\n{name} " in done.stdout


def test_who_is_beaten():
    least, most = Point("hakmem@0", 2.0, 100), Point("hakmem@10000", 1.0, 300)
    other, slow, near = Point("mimalloc3@0", 1.5, 150), Point("jemalloc", 2.5, 350), Point("mimalloc2", 0.99, 300)
    points = [least, other, most, near, slow]
    assert beaten_by(points, "hakmem") == {least: [], most: []}
    assert beaten_by(points, "mimalloc3") == {other: []}
    assert beaten_by(points, "jemalloc") == {slow: [least, other, most, near]}
    assert not near.beats(most) and Point("mimalloc2", 0.97, 300).beats(most) and not most.beats(most)


@pytest.mark.parametrize("arguments, word", [
    (["--delays", "1s"], "'1s'"), (["--rows", "no such row"], "no such row"), (["--rows", "("], "--rows (")])
def test_wrong_command_lines(tmp_path, arguments, word):
    status, said = tool.refused(tmp_path, "bench", "curve", "--out", tmp_path, *arguments)
    assert status == 2 and word in said, said
