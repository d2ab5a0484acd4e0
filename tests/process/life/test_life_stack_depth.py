"""Protects the stack use of the functions that report figures.

They use at most 8 KiB, so that threads with 16 KiB can call them."""

from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
MOST = 8192


@pytest.mark.parametrize("env", [{}, {"HAKMEM_SHOW_STATS": "1"}], ids=["defaults", "statistics at exit"])
def test_figures_fit_a_small_stack(compiled, library, env):
    linked = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}"]
    program = compiled(HERE / "stack_depth.c", "-Wno-deprecated-declarations", *linked)
    result = blackbox.run([program], env={"LD_BIND_NOW": "1", **env})
    assert result.status == 0, result.report()
    depths = dict(line.split() for line in result.stdout.splitlines())
    assert len(depths) == 14, depths
    assert {name: int(depth) for name, depth in depths.items() if int(depth) > MOST} == {}, depths


# What malloc and free may use on any path, including ticks, limits and a profile's files.
MALLOC_MOST = 4096
MALLOC_OPTIONS = {
    "defaults": {},
    "ticks": {"HAKMEM_PURGE_DELAY": "1"},
    "purge at once": {"HAKMEM_PURGE_DELAY": "0"},
    "no pending queues": {"HAKMEM_MF2_ENABLE": "0"},
    "limits": {"HAKMEM_MEMORY_LIMIT_SOFT": "1M"},
    "auto limits": {"HAKMEM_MEMORY_LIMIT_SOFT": "auto", "HAKMEM_PURGE_DELAY": "1"},
    "profile": {"HAKMEM_HEAP_PROFILE_RATE": "65536", "HAKMEM_HEAP_PROFILE": "%p.%n.gz"},
    "guards": {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "4096"},
    "guards and profile": {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "4096", "HAKMEM_HEAP_PROFILE_RATE": "65536",
                           "HAKMEM_HEAP_PROFILE": "%p.%n.gz"},
    "profile's files": {
        "HAKMEM_HEAP_PROFILE_RATE": "65536",
        "HAKMEM_HEAP_PROFILE": "%p.%n.gz",
        "HAKMEM_HEAP_PROFILE_UNWIND": "fp",
        "HAKMEM_HEAP_PROFILE_INTERVAL": "1M",
    },
}


@pytest.mark.parametrize("options", MALLOC_OPTIONS)
def test_malloc_and_free_fit_a_page(compiled, library, tmp_path, options):
    """Coroutines and threads with the smallest stacks may allocate."""
    env = {"LD_BIND_NOW": "1", **MALLOC_OPTIONS[options]}
    result = blackbox.run([compiled(HERE / "stack_malloc.c")], preload=library, env=env, cwd=tmp_path)
    assert result.status == 0, result.report()
    depths = {name: int(depth) for name, depth in (line.split() for line in result.stdout.splitlines())}
    assert sorted(depths) == ["free", "free_others", "malloc", "rest"], depths
    # The walk up the stack for a guarded block may take more on aarch64, which has more registers.
    most = 8192 if blackbox.EMULATOR and "HAKMEM_GUARD" in env else MALLOC_MOST
    assert max(depths.values()) <= most, depths
