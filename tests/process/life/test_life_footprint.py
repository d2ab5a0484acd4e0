"""Protects the footprint of programs that change their block sizes: it stays within limits."""

import os
import time
from pathlib import Path

import pytest

import blackbox
import machine

HERE = Path(__file__).resolve().parent
MB = 1000 * 1000
MIB = 1024 * 1024
LIVE = 60 * MB

# name, THREADS ORDER SIZE..., the live peak by usable size. A block of 100,000 bytes has 131,072.
PROGRAMS = {
    "3-MB": ([0, "fifo", 1000, 3000000, 1000], LIVE),
    "3-MB-lifo": ([0, "lifo", 1000, 3000000, 1000], LIVE),
    "3-MB-mixed": ([0, "mixed", 1000, 3000000, 1000], LIVE),
    "1.2-MB": ([0, "fifo", 1000, 1200000, 1000], LIVE),
    "100-KB-and-3-MB": ([0, "fifo", 1000, 100000, 3000000, 1000], LIVE * 131072 // 100000),
    "all": ([0, "mixed", 64, 1000, 20000, 100000, 1200000, 3000000, 20000, 64], LIVE * 131072 // 100000),
    "3-MB-threads": ([4, "fifo", 1000, 3000000, 1000], LIVE),
    "all-threads": ([4, "mixed", 1000, 3000000, 1200000, 1000, 3000000], LIVE),
}


def peak(result):
    assert (result.status, result.stderr) == (0, ""), result.report()
    return int(result.stdout) * 1024


@pytest.mark.parametrize("kind", ["HAKMEM_MEMORY_LIMIT", "HAKMEM_MEMORY_LIMIT_SOFT"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_limit_holds(compiled, name, kind):
    """Under a limit of 70 MiB, scaled by the live bytes, no block is refused and no more is resident, except stacks.
    Each thread may pass the soft limit while another gives memory back."""
    arguments, live = PROGRAMS[name]
    limit = 70 * MIB * live // LIVE
    own = (MIB if kind.endswith("SOFT") else 256 * 1024) * arguments[0]
    held = peak(
        blackbox.run_with_proof(
            [compiled(HERE / "size_change.c"), LIVE // MB, *arguments], env={kind: str(limit)}
        )
    )
    assert LIVE * 3 // 4 < held <= limit + own, f"{held / MIB:.1f} MiB"


def memory_calls(command, uptime):
    """The memory calls of a run whose clock says that the machine started `uptime` seconds ago."""
    offset = uptime - int(time.monotonic())
    result = blackbox.run(
        ["unshare", "--map-root-user", "--time", "--fork", f"--monotonic={offset}", "strace", "-f", "-c", "-e",
         "trace=madvise,mmap,munmap", "-E", f"LD_PRELOAD={blackbox.LIBRARY}", *command],
        env={"HAKMEM_PURGE_DELAY": "3600000"})
    assert result.status == 0, result.report()
    return {line.split()[-1]: int(line.split()[3]) for line in result.stderr.splitlines()
            if line.split()[-1:] in (["madvise"], ["mmap"], ["munmap"])}


@machine.needs("unshare:time", "ptrace", "program:strace")
def test_the_same_however_long_the_machine_is_up():
    """A time that was never stored is not a time at the machine's start."""
    command = [blackbox.LIBRARY_FOLDER.parent / "bin/bench_documents", "mir", 100, 0, 1]
    young, old = (memory_calls(command, uptime) for uptime in (60, 10_000_000))
    assert young == old and young["madvise"] > 0


# ---- In a cgroup ----

CONTROLLERS = Path("/sys/fs/cgroup/memory")
UNIFIED = Path("/sys/fs/cgroup")


def own_group():
    """The folder of this process's memory cgroup, and the names of its files. None if it is not writable."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder, limit, swap = CONTROLLERS / group.lstrip(
                "/"), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        elif controllers == "" and (UNIFIED / "cgroup.controllers").exists():
            folder, limit, swap = UNIFIED / group.lstrip("/"), "memory.max", "memory.swap.max"
            if "memory" not in (folder / "cgroup.subtree_control").read_text().split():
                continue
        else:
            continue
        if os.access(folder, os.W_OK):
            return folder, limit, swap
    return None


class Group:
    """A cgroup of the test's own. If none can be made: files that look like one, at the place that the library reads,
    in a mount namespace of the program. Then only the program's own report tells whether it stays below the limit."""

    def __init__(self, limit, place):
        self.limit = limit
        self.place = place
        self.real = own_group()
        self.folder = None

    def __enter__(self):
        if self.real:
            parent, limit, swap = self.real
            self.folder = parent / f"hakmem-test-{os.getpid()}"
            self.folder.mkdir()
            (self.folder / limit).write_text(str(self.limit))
            if swap == "memory.swap.max" and (self.folder / swap).exists():
                (self.folder / swap).write_text("0")
        return self

    def __exit__(self, *_):
        if self.folder:
            self.folder.rmdir()

    def command(self, argv):
        if self.real:
            return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.folder / "cgroup.procs", *argv]
        machine.require("unshare:mount")
        return in_fake_group(self.place, {"memory.max": self.limit}, argv)


def in_fake_group(place, files, argv):
    """Runs argv in a namespace where /sys/fs/cgroup, the root of all cgroups, is the folder `place` with the files."""
    for name, value in files.items():
        (place / name).write_text(f"{value}\n")
    shell = 'mount --bind "$0" /sys/fs/cgroup && exec "$@"'
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, place, *argv]


@pytest.mark.parametrize("env", [{}, {"HAKMEM_MEMORY_LIMIT": "auto"}, {"HAKMEM_MEMORY_LIMIT_SOFT": "auto"}],
                         ids=["default", "hard-auto", "soft-auto"])
@pytest.mark.parametrize("live", [60, 90])
def test_lives_in_a_cgroup(compiled, tmp_path, live, env):
    """The program stays below 110 MiB. The kernel kills it otherwise."""
    with Group(110 * MIB, tmp_path) as group:
        result = blackbox.run(
            group.command([compiled(HERE / "size_change.c"), live, 0, "fifo", 1000, 3000000, 1000]),
            preload=blackbox.LIBRARY,
            env=env,
        )
    assert live * MB * 3 // 4 < peak(result) <= 110 * MIB, result.report()


@machine.needs("unshare:mount")
def test_auto_follows_the_cgroup(compiled, tmp_path):
    """The limit and the pressure are read again while the program runs."""
    limit, pressure = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.pressure"
    result = blackbox.run(
        in_fake_group(
            tmp_path, {"memory.max": 64 * MIB}, [compiled(HERE / "cgroup_auto.c"), limit, 64, 160, pressure]
        ),
        preload=blackbox.LIBRARY,
        env={"HAKMEM_MEMORY_LIMIT": "auto", "HAKMEM_MEMORY_LIMIT_SOFT": "auto", "HAKMEM_PURGE_DELAY": "600000",
             "HAKMEM_SS_LRU_SIZE": "127"},  # 127: else only a part would wait in a process of one thread
    )
    assert (result.status, result.stderr) == (0, ""), result.report()


@machine.needs("unshare:mount")
@pytest.mark.parametrize("version", ["v1", "v2", "high"])
def test_soft_limit_of_a_cgroup_by_default(compiled, tmp_path, version):
    """Without an option nine tenths of the least limit above the process are a soft limit. 0 turns it off."""
    files = {"v1": "memory/memory.limit_in_bytes", "v2": "memory.max", "high": "memory.high"}
    (tmp_path / "memory").mkdir()
    program = in_fake_group(
        tmp_path,
        {files[version]: 76 * MIB},
        [compiled(HERE / "size_change.c"), LIVE // MB, 0, "fifo", 1000, 3000000, 1000],
    )
    assert peak(blackbox.run(program, preload=blackbox.LIBRARY)) <= 76 * MIB * 9 // 10 + MIB
    free = peak(blackbox.run(program, preload=blackbox.LIBRARY, env={"HAKMEM_MEMORY_LIMIT_SOFT": "0"}))
    assert free > 76 * MIB * 9 // 10 + MIB
