"""Protects allocation under little memory, address space or commit, HAKMEM's limits, and messages about settings."""

import re
import resource
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize("limit,size", [*((200000, size) for size in (200, 3000, 50000, 700000)), (2000000, 50000)])
def test_address_space_limit(compiled, limit, size):
    """ulimit -v: blocks get at least a third of the limit, the end is ENOMEM, and freed memory serves again."""
    wanted = limit * KIB // MIB // 3
    result = blackbox.run_with_proof(
        [compiled(HERE / "limits.c"), size, wanted], limits={resource.RLIMIT_AS: limit * KIB}, timeout=60
    )
    assert result.status == 0, result.report()
    assert result.stdout.splitlines()[-1] == "done"
    assert result.stderr == ""


@pytest.mark.parametrize(
    "argv",
    [
        [
            "/usr/bin/python3",
            "-c",
            "import json, threading\n"
            "print(len(json.dumps(list(range(200000)))), sum(len('x' * i) for i in range(5000)))\n"
            "ts = [threading.Thread(target=lambda: [bytearray(1000) for _ in range(1000)]) for _ in range(4)]\n"
            "[t.start() for t in ts]; [t.join() for t in ts]",
        ],
        ["perl", "-e", "my @a = map { 'x' x ($_ % 300) } 1 .. 50000; print scalar(@a), \"\\n\""],
        ["sort", "--parallel=2", "-S", "10M", blackbox.LIBRARY, "/etc/passwd"],
        ["bash", "-c", "for i in $(seq 2000); do a[i]=$i$i; done; echo ${#a[@]}"],
    ],
    ids=["python", "perl", "sort", "bash"],
)
def test_programs_under_address_space_limit(argv):
    blackbox.run_both(argv, limits={resource.RLIMIT_AS: 200000 * KIB})


@pytest.mark.parametrize("size", [200, 3000, 50000, 700000, 5000000])
def test_data_limit(compiled, size):
    """RLIMIT_DATA counts writable memory, as strict overcommit does, which only a machine's owner may choose. Reserved
    addresses do not count."""
    result = blackbox.run_with_proof(
        [compiled(HERE / "limits.c"), size, 100], limits={resource.RLIMIT_DATA: 300 * MIB}, timeout=60
    )
    assert result.status == 0, result.report()


@pytest.mark.parametrize("size", [100, 3000, 50000, 700000, 5000000])
def test_hard_memory_limit(compiled, size):
    result = blackbox.run_with_proof([compiled(HERE / "limits.c"), size, 40], env={"HAKMEM_MEMORY_LIMIT": "64M"})
    assert result.status == 0, result.report()
    assert 40 <= int(result.stdout.split()[0]) <= 64


@pytest.mark.parametrize("limit", ["64M", "64MiB", "67108864", "65536K"])
def test_hard_memory_limit_is_civil(limit, library):
    """Python turns ENOMEM into an exception and goes on."""
    program = (
        "kept = []\n"
        "try:\n"
        "    for _ in range(2000): kept.append(bytearray(1000000))\n"
        "except MemoryError:\n"
        "    got = len(kept)\n    kept.clear()\n"
        "print(30 <= got <= 64, len(bytearray(20000000)))\n"
    )
    result = blackbox.run(
        ["/usr/bin/python3", "-c", program],
        preload=library,
        env={"HAKMEM_MEMORY_LIMIT": limit, "PYTHONMALLOC": "malloc"},
    )
    assert (result.status, result.stdout, result.stderr) == (0, "True 20000000\n", ""), result.report()


def test_soft_memory_limit_calls_back(compiled):
    result = blackbox.run_with_proof([compiled(HERE / "pressure.c")], env={"HAKMEM_MEMORY_LIMIT_SOFT": "64M"})
    assert (result.status, result.stderr) == (0, ""), result.report()
    assert result.stdout == f"limit {64 * MIB}, mapped above\n"


def run_all(argv, env):
    """The program ends with the blocks that it wanted, although a soft limit, or none, is in its way."""
    result = blackbox.run_with_proof(argv, env=env)
    assert result.status == 0 and result.stdout.endswith("\ndone\n"), result.report()


def test_soft_memory_limit_alone_changes_nothing(compiled):
    run_all([compiled(HERE / "limits.c"), 3000, 100, 150], {"HAKMEM_MEMORY_LIMIT_SOFT": "20M"})


# ---- Settings ----


def test_verbose_names_version_and_settings(library):
    result = blackbox.run(["true"], preload=library, env={"HAKMEM_VERBOSE": "1", "HAKMEM_PURGE_DELAY": "250"})
    lines = result.stderr.splitlines()
    assert result.status == 0
    assert all(line.startswith("hakmem: ") for line in lines)
    assert re.match(r"hakmem: version \d+\.\d+\.\d+", lines[0])
    table = (blackbox.REPOSITORY / "src/options/table.h").read_text()
    names = re.findall(r'OPTION\(\w+, "(HAKMEM_[A-Z0-9_]+)", [A-Z]+', table)
    assert len(names) > 20
    for name in names:
        assert re.search(rf"\b{name}=", result.stderr), f"{name} is not named"
    assert re.search(r"\* HAKMEM_PURGE_DELAY=250", result.stderr)


@pytest.mark.parametrize(
    "name,value,what",
    [
        ("HAKMEM_NO_SUCH_NAME", "1", "unknown variable HAKMEM_NO_SUCH_NAME"),
        ("HAKMEM_VERBOS", "1", "HAKMEM_VERBOSE"),
        ("HAKMEM_PURGE_DELAY", "banana", "HAKMEM_PURGE_DELAY=banana"),
        ("HAKMEM_PURGE_DELAY", "-5", "HAKMEM_PURGE_DELAY=-5"),
        ("HAKMEM_FC_CAP", "100000", "HAKMEM_FC_CAP=100000"),
        ("HAKMEM_CACHE_BYTES", "99999999999999999999", "HAKMEM_CACHE_BYTES="),
        ("HAKMEM_THP", "maybe", "HAKMEM_THP=maybe"),
        ("HAKMEM_ABORT_ON_MISUSE", "perhaps", "HAKMEM_ABORT_ON_MISUSE=perhaps"),
        ("HAKMEM_MEMORY_LIMIT", "64Q", "HAKMEM_MEMORY_LIMIT=64Q"),
    ],
)
def test_wrong_setting_is_named_and_ignored(library, name, value, what):
    result = blackbox.run(["sh", "-c", "echo fine"], preload=library, env={name: value})
    assert (result.status, result.stdout) == (0, "fine\n"), result.report()
    assert len(result.stderr.splitlines()) == 1, result.report()
    assert result.stderr.startswith("hakmem: ") and what in result.stderr, result.report()


@pytest.mark.parametrize(
    "env",
    [
        {"HAKMEM_ARENA_SIZE": "64M"},
        {"HAKMEM_ARENA_SIZE": "1099511627776"},
        {"HAKMEM_FC_CAP": "8"},
        {"HAKMEM_FC_REFILL": "1"},
        {"HAKMEM_CACHE_BYTES": "16K"},
        {"HAKMEM_WARM_POOL": "0"},
        {"HAKMEM_SS_LRU_SIZE": "0"},
        {"HAKMEM_SS_PREWARM": "4"},
        {"HAKMEM_MF2_ENABLE": "0"},
        {"HAKMEM_MF2_MAX_QUEUES": "0"},
        {"HAKMEM_MF2_IDLE_THRESHOLD_US": "0"},
        {"HAKMEM_PURGE_DELAY": "0"},
        {"HAKMEM_PURGE_THREAD": "1"},
        {"HAKMEM_HUGE_CACHE": "0"},
        {"HAKMEM_POPULATE": "0"},
        {"HAKMEM_THP": "never"},
        {"HAKMEM_THP": "always"},
        {"HAKMEM_MEMORY_LIMIT": "auto"},
        {"HAKMEM_MEMORY_LIMIT_SOFT": "1M"},
    ],
    ids=lambda env: "=".join(*env.items()),
)
def test_every_setting_works(compiled, env):
    """A mixed load runs under each option at an end of its range."""
    result = blackbox.run_with_proof([compiled(HERE / "fork_storm.c"), 3, 2], env=env)
    assert (result.status, result.stdout) == (0, "6 children\n"), result.report()
    run_all([compiled(HERE / "limits.c"), 3000, 50, 60], env)
