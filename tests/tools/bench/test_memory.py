"""Protects hakmem bench memory: what is resident at the highest and after idling, side by side."""

import tool

FIGURES = ("full_kib", "live_kib", "freed_kib", "held_kib")


def test_a_row_on_two_allocators(tmp_path):
    done = tool.run(tmp_path, "bench", "memory", "--warm", 1, "--no-calls", "--out", tmp_path, *tool.TWO,
                    "--rows", "^sparse-64k$", "--rounds", 1)
    assert done.status == 0, done.report()
    entries = tool.only_result(tmp_path)["summary"]["rows"]["sparse-64k"]
    for name in ("hakmem", "glibc"):
        assert all(figure in entries[name] for figure in FIGURES), entries
        assert entries[name]["full_kib"] >= entries[name]["held_kib"]
    assert done.stdout.count("\nsparse-64k ") == 3


def test_wrong_command_lines(tmp_path):
    status, said = tool.refused(tmp_path, "bench", "memory", "--out", tmp_path, "--rows", "no such row")
    assert status == 2 and "no such row" in said, said
