"""Protects limits of address space and locked memory, set at start or at run time: only memory in use counts."""

import re
import resource
import shutil
import signal
from pathlib import Path

import pytest

import blackbox
import machine

HERE = Path(__file__).resolve().parent
KIB = 1024
MIB = 1024 * KIB
# setpriv of util-linux: another user, without the privilege to lock more than RLIMIT_MEMLOCK.
UNPRIVILEGED = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(HERE / "window.c")


# ---- RLIMIT_AS ----


@pytest.mark.parametrize("limit", [200, 1024])
def test_limit_set_while_running(program, limit):
    """After setrlimit(RLIMIT_AS) at run time: mmap, dlopen, threads and blocks work up to the limit."""
    result = blackbox.run_with_proof([program, "late", limit])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


# 100 bytes take 112 in a SuperSlab, whose header is 1/32. 100,000 bytes take 128 KiB, of which a SuperSlab has 15.
SHARES = [
    (100, {200: 82, 1024: 84}),
    (3000, {200: 88, 1024: 91}),
    (100000, {200: 68, 1024: 70}),
    (5000000, {200: 92, 1024: 96}),
]


@pytest.mark.parametrize("when", ["start", "late"])
@pytest.mark.parametrize("size,least", SHARES)
def test_share_of_limit(program, size, least, when):
    """Blocks of a size may fill the limit, except for what rounding costs, and no more than the limit."""
    for limit, share in least.items() if when == "start" else [(200, least[200])]:
        limits = {resource.RLIMIT_AS: limit * MIB} if when == "start" else None
        result = blackbox.run_with_proof([program, "share", size, limit, when], limits=limits)
        assert result.status == 0, result.report()
        assert share <= int(result.stdout) <= 100, (limit, result.stdout)


@pytest.mark.parametrize("limit", [200, 1024])
def test_sizes_shift_under_limit(program, limit):
    """Address space freed by one block size serves the next: empty SuperSlabs and freed huge ranges."""
    result = blackbox.run_with_proof([program, "shift", limit])
    assert result.status == 0, result.report()
    shares = [int(word) for word in result.stdout.split()]
    assert len(shares) == 6 and min(shares) >= 80 and max(shares) <= 100, shares


def test_python_sets_its_own_limit(library):
    """Python sets its own limit, and then threads, an extension module and objects work up to the limit."""
    program = (
        "import resource, threading\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))\n"
        "import sqlite3, decimal, ssl\n"
        "ts = [threading.Thread(target=lambda: [bytearray(1000) for _ in range(1000)]) for _ in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
        "kept = []\n"
        "try:\n"
        "    while len(kept) < 400: kept.append(bytearray(3000000))\n"
        "except MemoryError:\n"
        "    got = len(kept); kept.clear()\n"
        "print(250 <= got <= 358, len(bytearray(20000000)))\n"
    )
    result = blackbox.run(["/usr/bin/python3", "-c", program], preload=library, env={"PYTHONMALLOC": "malloc"})
    assert (result.status, result.stdout, result.stderr) == (0, "True 20000000\n", ""), result.report()


# ---- RLIMIT_DATA ----


@pytest.mark.parametrize("argv", [["ls", "/"], ["true"], ["sort", "/etc/passwd"]], ids=" ".join)
@pytest.mark.parametrize("kib", [10000, 6000])
def test_small_data_limit(argv, kib):
    """ulimit -d: a small program needs little, because nothing is committed in advance."""
    blackbox.run_both(argv, limits={resource.RLIMIT_DATA: kib * KIB})


# ---- What is mapped ----


def address_space(argv, **arguments):
    """VmSize in KiB, as the program reports it."""
    result = blackbox.run(argv, **arguments)
    assert result.status == 0, result.report()
    return int(re.search(r"VmSize:\s+(\d+) kB", result.stdout)[1])


def test_address_space_is_what_is_used(library):
    """At most 8 MiB above the program's own: the library, the window's head and its first slots."""
    argv = ["cat", "/proc/self/status"]
    assert address_space(argv, preload=library) - address_space(argv) <= 8 * KIB


def test_mappings_in_the_way(program):
    """The window continues behind mappings of the program that are in its way. A pointer into one is foreign."""
    result = blackbox.run([program, "foreign", 300], preload=blackbox.LIBRARY)
    assert (result.status, result.stdout) == (-signal.SIGABRT, "done\n"), result.report()
    assert "not allocated by HAKMEM" in result.stderr, result.report()


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"]], ids=lambda flags: flags[0])
def test_static_program(compiled, override_archive, flags):
    """A static program has another layout than a library. Its window has room too, and obeys the limit."""
    program = compiled(HERE / "window.c", *flags, override_archive)
    result = blackbox.run([program, "shift", 200])
    shares = [int(word) for word in result.stdout.split()]
    assert result.status == 0 and len(shares) == 6 and 80 <= min(shares) <= max(shares) <= 100, result.report()


def test_window_moves_with_each_start(program):
    """The window's place is as random as that of libraries."""
    wheres = {blackbox.run([program, "where", 1], preload=blackbox.LIBRARY).stdout for _ in range(8)}
    assert len(wheres) >= 7, wheres


# ---- Locked memory ----


@machine.needs("lock")
@pytest.mark.parametrize("size", [100, 50000, 5000000])
@pytest.mark.parametrize("flags", ["current", "all"])
def test_locked_memory_returns(program, flags, size):
    """After mlockall(MCL_CURRENT), also with MCL_FUTURE, freed memory leaves: 10 of 100 MiB may stay."""
    result = blackbox.run_with_proof([program, "locked", flags, size, 100], limits={})
    assert result.status == 0, result.report()
    before, with_blocks, after, again, after_again = (int(word) for word in result.stdout.split())
    assert with_blocks >= before + 90, result.stdout
    assert after <= before + 10 and after_again <= before + 10, result.stdout


@machine.needs("root")
def test_locked_memory_limit(program, library, open_folder):
    """Under RLIMIT_MEMLOCK of 8 MiB, without privileges: mlockall(MCL_CURRENT | MCL_FUTURE) succeeds, small blocks
    work, and the end is ENOMEM. Only memory in use counts."""
    for file in (program, library):
        shutil.copy(file, open_folder / file.name)
    limits = {resource.RLIMIT_MEMLOCK: 8 * MIB}
    result = blackbox.run([*UNPRIVILEGED, open_folder / program.name, "memlock", 1], limits=limits,
                          preload=open_folder / library.name)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
