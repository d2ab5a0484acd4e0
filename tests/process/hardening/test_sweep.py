"""Protects HAKMEM_SWEEP: a freed block is reused only when no pointer to it is left anywhere in the process.

Each program of swept.c prints "kept" or "reused" (docs/sweep.md)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["HAKMEM_BUILD_DIR"])
SECURE = BUILD / "lib" / "libhakmem-secure.so"
SWEEP = {"HAKMEM_SWEEP": "1", "HAKMEM_SWEEP_MIN": "65536"}
ROOMS = [40, 500, 3000, 20000, 100000, 600000]
HUGE = 3000000


@pytest.fixture(scope="module")
def swept(compiled):
    program = compiled(HERE / "swept.c", "-O1", "-w", "-pthread")

    def run(kind, size=64, env=None, **arguments):
        result = blackbox.run([program, kind, str(size)], preload=SECURE, env={**SWEEP, **(env or {})}, **arguments)
        assert result.status == 0, result.report()
        return result

    return run


def words(result):
    assert result.stderr == "", result.report()
    return result.stdout.split()


@pytest.mark.parametrize("size", [*ROOMS, HUGE])
def test_a_pointer_keeps_a_block_of_any_size(swept, size):
    """Once the pointer is overwritten, the block is reused. The system chooses huge blocks' addresses, so theirs come
    back too late for a test."""
    said = words(swept("global", size))
    assert said[0] == "kept"
    assert said[1] == "reused" or size == HUGE


@pytest.mark.parametrize("kind", ["interior", "end", "tagged", "heap", "small"])
def test_where_and_how_the_pointer_is(swept, kind):
    assert words(swept(kind, 40 if kind != "small" else 20000)) == ["kept", "reused"]


def test_a_mapping_of_the_program(swept):
    """The sweep reads the mapping even when it is read-only, until it is unmapped."""
    assert words(swept("mapping")) == ["kept", "kept", "reused"]


@pytest.mark.parametrize("kind", ["stack", "register", "call", "vector"])
def test_another_thread(swept, kind):
    """The pointer is on its stack, or only in a register: while computing, in a system call, in a vector register."""
    assert words(swept(kind))[0] == "kept"


def test_a_thread_that_cannot_be_stopped(swept):
    """The sweep still sees its stack. Unreferenced blocks are released after two sweeps, so memory stays bounded."""
    result = swept("deaf")
    assert words(result)[0] == "kept"


def test_a_thread_that_blocks_all_signals(swept):
    """It is stopped by a signal that glibc lets no program block, so the sweep sees its registers."""
    assert words(swept("masked"))[0] == "kept"


def test_without_stopping_threads(swept):
    assert words(swept("stack", env={"HAKMEM_SWEEP_SIGNAL": "0"}))[0] == "kept"


def test_the_program_has_the_signal(swept):
    """The sweep stops the program's threads by another signal, and the program sees no signal."""
    said = swept("handled").stdout.splitlines()
    assert said[0] == "kept" and said[2] == "0 signals", said


def test_a_signal_handler_frees(swept):
    assert words(swept("handler")) == ["kept"]


def test_without_a_sweep(swept):
    """Without a sweep the other tests' programs do reuse blocks."""
    for size in ROOMS:
        assert words(swept("global", size, env={"HAKMEM_SWEEP": "0"}))[0] == "reused", size


def test_no_pointer(swept):
    for size in (40, 3000, 600000):
        assert words(swept("nowhere", size)) == ["reused"], size


def test_garbage_in_a_circle(swept):
    """Freed blocks are zeroed, so they do not keep the blocks that they pointed to."""
    assert words(swept("cycle")) == ["reused"]


def test_a_hidden_pointer_is_not_seen(swept):
    assert words(swept("hidden")) == ["reused"]


def test_realloc_that_moves(swept):
    assert words(swept("moved", 3000)) == ["kept"]
    assert words(swept("moved", HUGE)) in (["kept"], ["grown", "in", "place"])


def test_fork(swept):
    """Parent and child keep the block independently: the child drops its pointer."""
    assert words(swept("fork")) == ["kept", "reused", "kept"] * 2


def test_forks_while_other_threads_sweep(swept):
    assert swept("forks").stdout == "done\n"


def test_memory_is_bounded(swept):
    """16 threads free 0.7 GB. Waiting blocks have at most 1.25 times what may be kept, 16 MiB and 4 MiB a thread;
    caches have as much."""
    result = swept("threads", env={"HAKMEM_SWEEP_MIN": "4194304"})
    assert int(re.search(r"resident (\d+) KiB", result.stdout)[1]) < 400 * 1024, result.report()


def test_a_memory_limit_comes_first(compiled):
    """Waiting blocks are released before an allocation fails."""
    program = compiled(HERE / "swept.c", "-O1", "-w", "-pthread")
    result = blackbox.run([program, "limit"], preload=SECURE,
                          env={"HAKMEM_SWEEP": "1", "HAKMEM_SWEEP_MIN": "1G", "HAKMEM_MEMORY_LIMIT": "64M"})
    assert result.status == 0 and result.stdout == "done\n", result.report()


@pytest.mark.parametrize("size", [64, 3000, 100000])
def test_a_block_in_quarantine_is_not_the_last_resort(swept, size):
    """When memory is out, a referenced block is given out only after the message about it."""
    result = swept("exhausted", size, env={"HAKMEM_SWEEP_MIN": "1G", "HAKMEM_MEMORY_LIMIT": "64M"})
    assert result.stdout == "reused\n", result.report()
    assert result.stderr.count("hakmem: ") == 1, result.report()


def test_the_ordinary_library_needs_hardening(compiled):
    program = compiled(HERE / "swept.c", "-O1", "-w", "-pthread")
    result = blackbox.run([program, "nowhere"], preload=blackbox.LIBRARY, env=SWEEP)
    assert "HAKMEM_SWEEP" in result.stderr and "HAKMEM_HARDENED" in result.stderr, result.report()
    result = blackbox.run([program, "global"], preload=blackbox.LIBRARY, env={**SWEEP, "HAKMEM_HARDENED": "1"})
    assert result.stdout.split() == ["kept", "reused"], result.report()


def test_statistics(swept):
    """Sweeps are counted, and waiting blocks do not count as live."""
    result = swept("counted")
    assert result.stdout == "counted\n", result.report()


SQL = """create table t(a integer primary key, b text);
with recursive s(i) as (select 1 union all select i + 1 from s where i < 30000) insert into t select i, 'row ' || (i * 7919 % 100003) from s;
create index ti on t(b); delete from t where a % 3 = 0; select count(*), sum(length(b)) from t where b like 'row 1%';"""
PYTHON = """import json, threading
def work(n):
    for r in range(4):
        out[n] = json.loads(json.dumps([{"k": i, "v": str(i) * 9} for i in range(4000)]))[-1]
out = {}
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted((k, v["v"]) for k, v in out.items()))"""
PERL = 'my %h; for my $r (1..3) { for (1..30000) { $h{$_ * 7919 % 100003} .= "x$_" } print scalar(keys %h), "\\n"; delete @h{grep { $_ % 2 } keys %h} }'


@pytest.mark.parametrize("program", ["sqlite3", "python", "perl"])
def test_real_programs_say_the_same(program):
    argv = {
        "sqlite3": ["sqlite3", ":memory:", SQL],
        "python": [sys.executable, "-c", PYTHON],
        "perl": ["perl", "-e", PERL],
    }[program]
    plain = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=blackbox.HANG)
    result = blackbox.run(argv, preload=SECURE, env={**SWEEP, "HAKMEM_SWEEP_MIN": "262144"}, timeout=120)
    assert (result.status, result.stdout) == (0, plain.stdout), result.report()
