"""Protects libhakmem-secure: how each kind of misuse ends, and that correct programs go on."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

import blackbox
import machine
from messages import FOREIGN, FREED, NO_BLOCK, SIZE, aborted, misuse_in, numbers, pointers

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["HAKMEM_BUILD_DIR"])
SECURE = BUILD / "lib" / "libhakmem-secure.so"

SIZES = [16, 24, 100, 1000, 5000, 60000, 300000, 2000000]
# A write past a block's end, which only a hardened library finds.
PAST_END = (None,)
# How each kind ends, at any size: the function and what the message says.
CAUGHT = {
    "overflow_1": ("free", PAST_END),
    "overflow_second_byte": ("free", PAST_END),
    "overflow_32": ("free", PAST_END),
    "overflow_realloc": ("realloc", PAST_END),
    "double": ("free", [FREED]),
    "double_between": ("free", [FREED]),
    "double_other_thread": ("free", [FREED]),
    "double_after_other_thread": ("free", [FREED]),
    "double_after_trim": ("free", [FREED, FOREIGN]),
    "interior": ("free", [NO_BLOCK]),
    "unaligned": ("free", [NO_BLOCK]),
    "realloc_freed": ("realloc", [FREED]),
    "usable_freed": ("malloc_usable_size", [FREED]),
    "wrong_size": ("free_sized", [SIZE]),
}


@pytest.fixture(scope="module")
def misused(compiled):
    program = compiled(HERE / "misused.c", "-O0", "-Wno-use-after-free", "-pthread", "-ldl")

    return lambda kind, size, env=None: blackbox.run([program, kind, str(size)], preload=SECURE, env=env)


@pytest.fixture(scope="module")
def operators(compiled):
    program = compiled(HERE / "operators.cpp", "-O0", "-w")

    return lambda kind: blackbox.run([program, kind], preload=SECURE)


def expect(result, function):
    """The message of a run that ends in this function."""
    said = aborted(result)
    assert said.function == function, result.report()
    return said


def expect_later(result):
    """The misuse is found as blocks move, or at the end. The message names what was written, or the block behind it."""
    said = aborted(result)
    assert said.function in ("free", "malloc", "exit"), result.report()
    return said


@pytest.mark.parametrize("kind", CAUGHT)
def test_caught_at_the_call(misused, kind):
    function, misuses = CAUGHT[kind]
    for size in SIZES:
        result = misused(kind, size)
        said = expect(result, function)
        assert said.kind in misuses, result.report()
        if misuses == PAST_END:
            assert said.numbers[-1] >= size, result.report()
        if not kind.startswith(("interior", "unaligned", "overflow_realloc")) and size < 1 << 20:
            assert said.pointer == pointers(result)[0] and len(said.owner) in (3, 0), result.report()


def test_an_overflow_is_named_by_its_byte(misused):
    for size in (24, 100, 5000, 60000, 2000000):
        result = misused("overflow_second_byte", size)
        assert aborted(result).numbers == (size, size + 1), result.report()


def test_a_write_before_a_small_block_is_seen_as_the_one_before_is_freed(misused):
    for kind, size in (("underflow_1", 16), ("underflow_1", 500), ("underflow_8", 24), ("underflow_8", 100)):
        result = misused(kind, size)
        assert expect(result, "free").pointer == pointers(result)[1], result.report()


def test_a_write_past_a_small_block_that_stays_is_seen_later(misused):
    """Before the block that was written is freed, or any beside it."""
    for size in (24, 500):
        expect_later(misused("overflow_taken", size))


def test_a_write_after_free_is_seen_when_the_block_is_used_again(misused):
    """Small blocks are watched whole, larger ones at their edges."""
    for size in (16, 24, 100, 1000, 30000):
        result = misused("write_after_free", size)
        said = expect_later(result)
        assert said.numbers[:2] == (min(size // 2, 31), 0x41) and len(said.owner) == 3, result.report()


def test_some_freed_spans_and_huge_blocks_lose_their_access(misused):
    """One in sixteen. That none of 500 does has a probability of (15/16)^500, 10^-14."""
    for size in (60000, 300000, 1048000, 2000000):
        result = misused("closed", size)
        assert result.status == 0 and 0 < int(result.stdout.splitlines()[1]) < 400, result.report()


def test_freed_memory_is_zero(misused):
    """That of small blocks at once, that of others when calloc gives it."""
    for size in SIZES:
        for kind in ("read_after_free", "calloc_after_free"):
            if kind == "calloc_after_free" or size <= 120:
                result = misused(kind, size)
                assert (result.status, result.stdout.splitlines()[1:], result.stderr) == (0, ["went on"],
                                                                                          ""), result.report()


def test_pages_that_nobody_writes_get_no_memory(compiled):
    """Of each of 2,000 blocks of 16 KiB two pages of five do: that of its first bytes and that of its seal. Clearing
    whole blocks at their free makes 40 MiB of them."""
    program = compiled(HERE / "sparse.c", "-O1", "-w", "-fno-builtin")
    result = blackbox.run([program], preload=SECURE, env={"HAKMEM_THP": "never"})
    assert result.status == 0 and all(int(kib) < 28 << 10 for kib in result.stdout.split()), result.report()


def test_zeroed_memory_is_zero(compiled):
    """By each function that promises it, after memory of that size was filled and freed."""
    program = compiled(HERE / "zeroed.c", "-O0", "-w", "-fno-builtin", SECURE, f"-Wl,-rpath,{SECURE.parent}")
    result = blackbox.run([program], preload=None)
    assert (result.status, result.stdout, result.stderr) == (0, "zero\n", ""), result.report()


def test_a_free_span_that_shrank_before_is_no_misuse(compiled):
    program = compiled(HERE / "shrunk.c", "-O0", "-w", "-fno-builtin", SECURE, f"-Wl,-rpath,{SECURE.parent}")
    result = blackbox.run([program], preload=None)
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()


def test_a_process_that_tells_itself_not_to_abort_goes_on(compiled):
    """By its own hakmem_options: the environment cannot."""
    program = compiled(HERE / "misused.c", "-O0", "-Wno-use-after-free", "-pthread", "-ldl", "-rdynamic", "-DGO_ON")
    for kind, (function, misuses) in CAUGHT.items():
        result = blackbox.run([program, kind, "5000"], preload=SECURE)
        assert result.status == 0 and result.stdout.endswith("went on\n"), result.report()
        said = misuse_in(result.stderr)[0]
        assert said.function == function and said.kind in misuses, result.report()


# ---- Operators, and blocks of no bytes ----

# What is called, and the functions that the message names: the one that allocated, and the one that freed.
MIXED = {
    "malloc_delete": ("operator delete", ["malloc", "operator delete"]),
    "new_free": ("free", ["operator new", "free"]),
    "new_realloc": ("realloc", ["operator new", "free"]),
    "array_delete": ("operator delete", ["operator new[]", "operator delete"]),
    "new_delete_array": ("operator delete[]", ["operator new", "operator delete[]"]),
    "huge_array_delete": ("operator delete", ["operator new[]", "operator delete"]),
}


def test_mixed_operators_are_told(operators):
    for kind, (function, allocators) in MIXED.items():
        result = operators(kind)
        assert expect(result, function).allocators == allocators, result.report()
    assert expect(operators("wrong_size"), "operator delete").kind == SIZE


def test_operators_that_are_not_mixed_go_on(operators):
    result = operators("ok")
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()


def test_blocks_of_no_bytes(operators):
    assert operators("nothing_write").status == -signal.SIGSEGV
    assert operators("nothing_read").status == -signal.SIGSEGV
    expect(operators("nothing_double"), "free")
    expect(operators("nothing_interior"), "free")


# ---- Types apart ----


@pytest.fixture(scope="module")
def tokens(compiled):
    program = compiled(HERE / "tokens.c", "-O0", "-w", "-fno-builtin", SECURE, f"-Wl,-rpath,{SECURE.parent}")
    return lambda *arguments: blackbox.run([program, *arguments], preload=None)


def test_blocks_with_pointers_and_without_share_no_slab(tokens):
    result = tokens()
    assert (result.status, result.stdout, result.stderr) == (0, "apart\n", ""), result.report()


def test_blocks_with_tokens_are_checked_like_others(tokens):
    assert expect(tokens("double"), "free").kind == FREED
    assert expect(tokens("overflow"), "free").numbers
    assert expect(tokens("mixed"), "free").allocators == ["operator new", "free"]


# ---- What the kernel refuses, and the end ----


def test_a_refused_closing_is_said_once_and_goes_on(misused):
    """A filter that refuses mprotect stands for a process that has no mapping left."""
    code = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Filter(ctypes.Structure): _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]
NUMBER, PROT = 0, 32
rows = [(0x20, 0, 0, NUMBER), (0x15, 0, 3, {mprotect}), (0x20, 0, 0, PROT), (0x15, 0, 1, 0), (0x06, 0, 0, 0x00050000 | 12), (0x06, 0, 0, 0x7fff0000)]
filters = (Filter * len(rows))(*[Filter(*row) for row in rows])
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rows), filters)), 0, 0) == 0
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for size in (100000, 300000, 3000000) * 10:
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)
print("went on")
""".replace("{mprotect}", {"x86_64": "10", "aarch64": "226"}[os.uname().machine])
    result = blackbox.run([sys.executable, "-c", code], preload=SECURE)
    assert (result.status, result.stdout) == (0, "went on\n"), result.report()
    lines = result.stderr.splitlines()
    # Guards beside slabs need mprotect only where the kernel has no MADV_GUARD_INSTALL. They have a line of their own.
    assert len(lines) == (2 if machine.lacks("guards") else 1), result.report()
    assert all(len(numbers(line)) == 2 and "vm.max_map_count" in line for line in lines), result.report()


def test_a_write_to_a_block_that_stays_free_is_seen_at_the_end(misused):
    for size in (16, 1000, 5000):
        result = misused("write_at_end", size)
        byte, now = expect_later(result).numbers
        assert byte < size and now < 256, result.report()


# ---- The whole allocator, and real programs ----

STRESS = {
    "differential": ["differential_secure", "--calls", "30000"],
    "orphans": ["stress_secure", "orphans", "--seconds", "1"],
    "heaps": ["stress_secure", "heaps", "--seconds", "1"],
}


@pytest.mark.parametrize("scenario", STRESS)
def test_stress_with_contents_verified(scenario):
    program, *arguments = STRESS[scenario]
    result = blackbox.run([BUILD / "bin" / program, *arguments])
    assert result.status == 0, result.report()


PYTHON = """
import json, random, re, subprocess, sys, threading, zlib
random.seed(1)
text = json.dumps([{str(i): [random.random() for _ in range(20)]} for i in range(2000)])
threads = [threading.Thread(target=lambda: [str(i) * 10 for i in range(20000)]) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(zlib.crc32(text.encode()), len(re.findall(r"0[.]1", text)), sum(len(b"x" * n) for n in range(0, 3000000, 99999)))
print(subprocess.run([sys.executable, "-c", "print(len([0] * 500000))"], capture_output=True, text=True).stdout)
"""
SQL = """create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 50000)
insert into t select x, hex(x * x) from c; create index i on t(b); select count(*), sum(length(b)) from t;
select b from t order by b limit 3;"""
PERL = 'my %h; $h{$_} = "x" x ($_ % 100) for 1..50000; print scalar(keys %h), " ", length(join(",", map { $h{$_} } sort keys %h)), "\\n"'
LUA = """local t = {} for i = 1, 100000 do t[i] = ("x"):rep(i % 50) .. i end
table.sort(t) local n = 0 for i = 1, #t do n = (n * 31 + #t[i] * i) % 1000003 end print(n, t[1], t[#t])"""
REDIS = """redis-server --port 0 --unixsocket "$1/redis.sock" --save '' --appendonly no >/dev/null & server=$!
for i in $(seq 24000); do [ -S "$1/redis.sock" ] && break; sleep 0.05; done
seq 5000 | awk '{ printf "SET key:%d %s\\nLPUSH list:%d %d\\n", $1, $1 * $1, $1 % 100, $1 }' | redis-cli -s "$1/redis.sock" | sort | uniq -c | wc -l
redis-cli -s "$1/redis.sock" eval "local n = 0 for i = 1, 5000 do n = n + redis.call('GET', 'key:' .. i) end return n" 0
redis-cli -s "$1/redis.sock" shutdown nosave; wait $server"""
PROGRAMS = {
    "lua": ["lua", "-e", LUA],
    "python": [sys.executable, "-c", PYTHON],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "perl": ["perl", "-e", PERL],
    "git": ["git", "-c", "safe.directory=*", "log", "--stat", "-20"],
    "gcc": ["gcc", "-O2", "-w", "-S", "-o", "-", str(HERE / "misused.c")],
    "sort": ["sort", "--parallel=2", "-r", str(BUILD / "build.ninja")],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_real_programs_print_the_same(program):
    plain = blackbox.run(PROGRAMS[program], cwd=HERE)
    hardened = blackbox.run(PROGRAMS[program], preload=SECURE, cwd=HERE)
    assert (hardened.status, hardened.stdout, hardened.stderr) == (plain.status, plain.stdout, plain.stderr)


@machine.needs("program:redis-server", "program:redis-cli")
def test_redis_answers_the_same(tmp_path):
    said = []
    for name, preload in (("plain", None), ("secure", SECURE)):
        (tmp_path / name).mkdir()
        result = blackbox.run(["sh", "-c", REDIS, "sh", tmp_path / name], preload=preload)
        assert result.status == 0 and "hakmem" not in result.stderr, result.report()
        said.append(result.stdout)
    assert said[0] == said[1] and "41679167500" in said[0]


# ---- Settings ----

def test_the_environment_does_not_weaken_the_secure_library(misused):
    for name in ("HAKMEM_HARDENED", "HAKMEM_ABORT_ON_MISUSE"):
        result = misused("overflow_1", 100, {name: "0"})
        refusal, message = result.stderr.splitlines()
        assert refusal.startswith(f"hakmem: {name}=0 ") and result.status == -signal.SIGABRT, result.report()
        assert [said.numbers for said in misuse_in(message)] == [(100, 100)], result.report()


def test_the_ordinary_library_names_the_hardened_one():
    """HAKMEM_HARDENED=1 is no setting: whoever sets it is told once what to load, and the program goes on."""
    for library, said in ((blackbox.LIBRARY, ["libhakmem-secure.so"]), (SECURE, [])):
        result = blackbox.run(["true"], preload=library, env={"HAKMEM_HARDENED": "1"})
        assert result.status == 0 and re.findall(r"libhakmem-secure\.so", result.stderr) == said, result.report()
        assert len(result.stderr.splitlines()) == len(said), result.report()


@pytest.mark.parametrize("way", [None, "secure"])
def test_a_library_that_calls_its_own_operators(compiled, way):
    """rustc's libLLVM is one. rust-lld's inline functions free its blocks by the operator that the linker finds first."""
    source = HERE / "run_time_inside.cpp"
    library = compiled(source, "-O1", "-fPIC", "-shared", "-DLIBRARY", "-Wl,-Bsymbolic")
    program = compiled(source, "-O1", "-w", library, f"-Wl,-rpath,{library.parent}")
    result = blackbox.run([program], preload=SECURE if way else None)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
