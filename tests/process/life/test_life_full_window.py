"""Protects malloc, aligned_alloc and first-class heaps when the window for pooled blocks is full."""

from pathlib import Path

import blackbox

HERE = Path(__file__).resolve().parent


def test_every_way_is_served(compiled, library):
    linked = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}"]
    result = blackbox.run([compiled(HERE / "full_window.c", *linked)], env={"HAKMEM_ARENA_SIZE": "16M"})
    assert (result.status, result.stdout, result.stderr) == (0, "served\n", ""), result.report()
