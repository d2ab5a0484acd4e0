"""Protects allocation behind a seccomp filter, which ends the process at any system call outside its list.

Allocation makes only system calls for memory, time and futexes."""

import os
import subprocess
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
AT_ONCE = {"HAKMEM_PURGE_THREAD": "never", "HAKMEM_PURGE_DELAY": "0", "HAKMEM_SS_LRU_SIZE": "0"}
OPTIONS = {
    "little memory": ("300000", {}),
    "much memory": ("3000000", {}),
    "purge at once": ("3000000", AT_ONCE),
    "no purge thread": ("3000000", {"HAKMEM_PURGE_THREAD": "never", "HAKMEM_PURGE_DELAY": "5"}),
    "smallest caches": ("300000", {"HAKMEM_FC_CAP": "8", "HAKMEM_FC_REFILL": "1", "HAKMEM_CACHE_BYTES": "16K"}),
}


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("options", OPTIONS)
def test_allocation_behind_a_filter(compiled, library, options, threads):
    most, env = OPTIONS[options]
    program = compiled(HERE / "sandbox.c")
    result = blackbox.run([program, threads, most, 3], preload=library, env=env)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("options", ["much memory", "purge at once"])
def test_allocation_of_the_hardened_library_behind_a_filter(compiled, library, options):
    """Its huge blocks lie at random places, for which it asks the system no more."""
    most, env = OPTIONS[options]
    secure = library.parent / "libhakmem-secure.so"
    result = blackbox.run([compiled(HERE / "sandbox.c"), 4, most, 20], preload=secure)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_filter_directly_after_the_purge_thread_starts(compiled, library):
    """The purge thread has made the system calls of its start when the call that started it returns."""
    command = ["taskset", "-c", min(os.sched_getaffinity(0)), compiled(HERE / "sandbox.c"), 1, 300000, 1]
    for _ in range(20):
        result = blackbox.run(command, preload=library)
        assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("flags", [["-static"], []], ids=["static", "dynamic"])
def test_allocation_behind_a_filter_with_the_override(compiled, override_archive, flags):
    """It does not notice the sandbox, so that the filter must allow mincore (docs/doctor.md)."""
    program = compiled(HERE / "sandbox.c", *flags, override_archive)
    result = blackbox.run([program, 8, 300000, 3, "mincore"])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("flag", ["NOTICED", "UNNOTICED"])
def test_the_look_of_the_hardened_library_at_exit_ends_no_sandboxed_process(compiled, library, flag):
    secure = library.parent / "libhakmem-secure.so"
    program = compiled(HERE / "sandbox_exit.c", "-O0", f"-D{flag}")
    result = blackbox.run([program], preload=secure)
    assert (result.status, result.stderr) == (0, ""), result.report()


@pytest.mark.parametrize("env", [
    {"HAKMEM_SHOW_STATS": "1"},
    {"HAKMEM_SHOW_STATS": "json"},
    {"HAKMEM_HEAP_PROFILE": "profile.pb", "HAKMEM_HEAP_PROFILE_RATE": "1"},
    {"HAKMEM_LEAK_REPORT": "1"},
], ids=lambda env: "-".join(env.values()))
def test_reports_at_exit_end_no_sandboxed_process(compiled, library, tmp_path, env):
    """As in OpenSSH's server: reports that a user asked for ended the process of each connection before its login."""
    with open(tmp_path / "stderr", "w") as stderr:
        done = subprocess.run([compiled(HERE / "sandbox_exit.c")], stderr=stderr, cwd=tmp_path, timeout=blackbox.HANG,
                              env={**os.environ, **env, "LD_PRELOAD": str(library)})
    assert done.returncode == 0, (tmp_path / "stderr").read_text()
