"""Protects libhakmem-secure and HAKMEM_HARDENED=1: how each kind of misuse ends, and that correct programs go on."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["HAKMEM_BUILD_DIR"])
SECURE = BUILD / "lib" / "libhakmem-secure.so"
# preload, environment
WAYS = {"secure": (SECURE, {}), "switch": (blackbox.LIBRARY, {"HAKMEM_HARDENED": "1"})}

FREED = r"freed already"
NO_BLOCK = r"not the start of a block"
PAST_END = r"written past its end: .*byte \d+"
SIZES = [16, 24, 100, 1000, 5000, 60000, 300000, 2000000]
# How each kind ends, at any size: the function and the words of the message.
CAUGHT = {
    "overflow_1": ("free", PAST_END),
    "overflow_second_byte": ("free", PAST_END),
    "overflow_32": ("free", PAST_END),
    "overflow_realloc": ("realloc", PAST_END),
    "double": ("free", FREED),
    "double_between": ("free", FREED),
    "double_other_thread": ("free", FREED),
    "double_after_other_thread": ("free", FREED),
    "double_after_trim": ("free", FREED + r"|not allocated by HAKMEM"),
    "interior": ("free", NO_BLOCK),
    "unaligned": ("free", NO_BLOCK),
    "realloc_freed": ("realloc", FREED),
    "usable_freed": ("malloc_usable_size", FREED),
    "wrong_size": ("free_sized", r"not of that size"),
}


@pytest.fixture(scope="module")
def misused(compiled):
    program = compiled(HERE / "misused.c", "-O0", "-Wno-use-after-free", "-pthread", "-ldl")

    def run(way, kind, size, env=None):
        preload, environment = WAYS[way]
        return blackbox.run([program, kind, str(size)], preload=preload, env={**environment, **(env or {})})

    return run


@pytest.fixture(scope="module")
def operators(compiled):
    program = compiled(HERE / "operators.cpp", "-O0", "-w")

    def run(way, kind, env=None):
        preload, environment = WAYS[way]
        return blackbox.run([program, kind], preload=preload, env={**environment, **(env or {})})

    return run


def off(*names):
    """The messages at start about mechanisms that are off."""
    return "".join(f"hakmem: hardened without {name}: it is off, or another one that it needs\n" for name in names)


def expect_message(result, function, words):
    assert result.status == -signal.SIGABRT, result.report()
    assert re.fullmatch(rf"hakmem: {re.escape(function)}\(0x[0-9a-f]+\): .*({words}).*\n",
                        result.stderr), result.report()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CAUGHT)
def test_caught_at_the_call(misused, way, kind):
    function, words = CAUGHT[kind]
    for size in SIZES:
        result = misused(way, kind, size)
        expect_message(result, function, words)
        if not kind.startswith(("interior", "unaligned", "overflow_realloc")) and size < 1 << 20:
            assert result.stdout.splitlines()[0] in result.stderr, result.report()
            assert re.search(r"size class \d+, owner heap \d+ of thread \d+|gone with its slab, no owner",
                             result.stderr), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_an_overflow_is_named_by_its_byte(misused, way):
    for size in (24, 100, 1000, 5000, 60000, 2000000):
        result = misused(way, "overflow_second_byte", size)
        assert f"written past its end: {size} bytes were asked for, byte {size + 1} changed" in result.stderr, result.report(
        )


@pytest.mark.parametrize("way", WAYS)
def test_a_write_before_a_small_block_is_seen_at_its_free(misused, way):
    for kind in ("underflow_1", "underflow_8"):
        for size in (16, 24, 100, 500):
            result = misused(way, kind, size)
            # No block lies before the slab's first block.
            if not result.stdout.splitlines()[0].endswith("0000"):
                expect_message(result, "free", r"the block before it, 0x[0-9a-f]+, was written at or past its end")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind, function", [("full_realloc", "realloc"), ("full_sized", "free_sized")])
def test_a_full_ring_names_the_function(misused, way, kind, function):
    """A call that finds its ring full looks at the block behind. The line names that call."""
    for size in (24, 100, 500):
        expect_message(misused(way, kind, size), function,
                       r"the block behind it, 0x[0-9a-f]+, was written past its end")


@pytest.mark.parametrize("way", WAYS)
def test_a_write_past_a_small_block_is_seen_when_the_next_is_taken(misused, way):
    """Before the block that was written is freed, or any beside it."""
    for size in (24, 100, 500):
        expect_message(misused(way, "overflow_taken", size), "malloc",
                       r"the block before it, 0x[0-9a-f]+, was written at or past its end")


@pytest.mark.parametrize("way", WAYS)
def test_a_write_after_free_is_seen_when_the_block_is_used_again(misused, way):
    for size in (16, 24, 100, 1000, 5000, 30000):
        result = misused(way, "write_after_free", size)
        expect_message(result, "malloc", rf"written while it was free, at byte {size // 2} \(now 0x41\)")
        assert re.search(r"size class \d+, owner heap", result.stderr), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_spans_and_huge_blocks_lose_their_access(misused, way):
    for kind in ("write_after_free", "read_after_free"):
        for size in (60000, 300000, 2000000):
            assert misused(way, kind, size).status == -signal.SIGSEGV


@pytest.mark.parametrize("way", WAYS)
def test_a_span_stays_closed_until_it_is_used_again(misused, way):
    for size in (60000, 65536, 100000, 1048576):
        result = misused(way, "write_after_leaving", size)
        assert result.status == -signal.SIGSEGV, result.report()


def test_a_write_to_an_open_span_is_named(misused):
    result = misused("switch", "write_after_leaving", 100000, {"HAKMEM_HARDEN_PROTECT": "0"})
    assert re.fullmatch(r"hakmem: hardened without HAKMEM_HARDEN_PROTECT.*\nhakmem: malloc\(0x[0-9a-f]+\): "
                        r"written while it was free, at byte 50000.*\n", result.stderr), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_a_write_past_an_exact_span_faults(misused, way):
    """A size that leaves no room for a canary: a unit that nobody can access lies behind."""
    for units in (1, 2, 7, 16):
        assert misused(way, "overflow_1", units * 65536).status == -signal.SIGSEGV
        expect_message(misused(way, "overflow_second_byte", units * 65536 - 7), *CAUGHT["overflow_second_byte"])
    without = misused("switch", "overflow_second_byte", 65536, {"HAKMEM_HARDEN_GUARDS": "0"})
    assert re.search(PAST_END, without.stderr), without.report()


def test_spans_beyond_the_time_for_closing_are_zeroed_and_checked(misused):
    def beyond(kind):
        """A run in which the span was not protected. On a busy machine a thread that waited may protect some more."""
        for _ in range(5):
            result = misused("switch", kind, 100000, {"HAKMEM_HARDEN_PROTECT_TIME": "1"})
            if result.status != -signal.SIGSEGV:
                break
        return result

    assert misused("switch", "read_after_many", 100000, {"HAKMEM_HARDEN_PROTECT_TIME": "100"}).status == -signal.SIGSEGV
    result = beyond("read_after_many")
    assert (result.status, result.stdout.splitlines()[1:], result.stderr) == (0, ["went on"], ""), result.report()
    written = r"written while it was free, at byte 50000"
    expect_message(beyond("write_after_many"), "malloc", written)
    # Spans that were mostly unwritten give their memory back.
    expect_message(beyond("write_after_many_sparse"), "malloc", written)
    result = misused("secure", "read_after_free", 100, {"HAKMEM_HARDEN_PROTECT_TIME": "1"})
    assert "hakmem: HAKMEM_HARDEN_PROTECT_TIME=1 ignored" in result.stderr, result.report()


@pytest.mark.parametrize("way", WAYS)
def test_freed_memory_is_zero(misused, way):
    for size in SIZES:
        for kind in ("read_after_free", "calloc_after_free"):
            if kind == "calloc_after_free" or size < 50000:
                result = misused(way, kind, size)
                assert (result.status, result.stdout.splitlines()[1:], result.stderr) == (0, ["went on"],
                                                                                          ""), result.report()


def test_a_process_that_is_told_not_to_abort_goes_on(misused):
    env = {"HAKMEM_ABORT_ON_MISUSE": "0"}
    for kind, (function, words) in CAUGHT.items():
        for size in (24, 5000):
            result = misused("switch", kind, size, env)
            assert result.status == 0 and result.stdout.endswith("went on\n"), result.report()
            assert re.match(rf"hakmem: {function}\(.*({words})", result.stderr), result.report()


# ---- Operators, and blocks of no bytes ----

MIXED = {
    "malloc_delete": ("operator delete", "allocated by malloc, freed by operator delete"),
    "new_free": ("free", "allocated by operator new, freed by free"),
    "new_realloc": ("realloc", "allocated by operator new, freed by free"),
    "array_delete": ("operator delete", r"allocated by operator new\[\], freed by operator delete"),
    "new_delete_array": ("operator delete[]", r"allocated by operator new, freed by operator delete\[\]"),
    "huge_array_delete": ("operator delete", r"allocated by operator new\[\], freed by operator delete"),
    "wrong_size": ("operator delete", "not of that size"),
}


@pytest.mark.parametrize("way", WAYS)
def test_mixed_operators_are_told(operators, way):
    for kind, (function, words) in MIXED.items():
        expect_message(operators(way, kind), function, words)


def test_operators_may_be_mixed_where_their_switch_is_off(operators):
    for kind in MIXED:
        result = operators("switch", kind, {"HAKMEM_HARDEN_OPERATORS": "0"})
        assert (result.status, result.stderr) == (0, off("HAKMEM_HARDEN_OPERATORS")), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_operators_that_are_not_mixed_go_on(operators, way):
    result = operators(way, "ok")
    assert (result.status, result.stdout, result.stderr) == (0, "went on\n", ""), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_blocks_of_no_bytes(operators, way):
    assert operators(way, "nothing_write").status == -signal.SIGSEGV
    assert operators(way, "nothing_read").status == -signal.SIGSEGV
    expect_message(operators(way, "nothing_double"), "free", FREED)
    expect_message(operators(way, "nothing_interior"), "free", NO_BLOCK)


# ---- Types apart ----


@pytest.fixture(scope="module")
def tokens(compiled):
    program = compiled(HERE / "tokens.c", "-O0", "-w", "-fno-builtin", SECURE, f"-Wl,-rpath,{SECURE.parent}")
    return lambda *arguments: blackbox.run([program, *arguments], preload=None)


def test_blocks_with_pointers_and_without_share_no_slab(tokens):
    result = tokens()
    assert (result.status, result.stdout, result.stderr) == (0, "apart\n", ""), result.report()


def test_blocks_with_tokens_are_checked_like_others(tokens):
    expect_message(tokens("double"), "free", FREED)
    expect_message(tokens("overflow"), "free", PAST_END)
    expect_message(tokens("mixed"), "free", "allocated by operator new, freed by free")


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
    assert re.fullmatch(r"hakmem: the kernel refused to make \d+ bytes at 0x[0-9a-f]+ inaccessible: "
                        r".*vm\.max_map_count.*\n", result.stderr), result.report()


@pytest.mark.parametrize("way", WAYS)
def test_a_write_to_a_block_that_stays_free_is_seen_at_the_end(misused, way):
    for size in (16, 100, 1000, 5000):
        result = misused(way, "write_at_end", size)
        assert result.status == -signal.SIGABRT, result.report()
        assert re.search(r"^hakmem: exit\(0x[0-9a-f]+\): written while it was free, at byte \d+ .*found at the "
                         r"process's end", result.stderr), result.report()


# ---- The whole allocator, and real programs ----

STRESS = {
    "differential": ["differential", "--calls", "30000"],
    "churn": ["stress", "churn", "--seconds", "1"],
    "orphans": ["stress", "orphans", "--seconds", "1"],
    "producers": ["stress", "producers", "--seconds", "1"],
    "heaps": ["stress", "heaps", "--seconds", "1"],
}


@pytest.mark.parametrize("scenario", STRESS)
def test_stress_with_contents_verified(scenario):
    program, *arguments = STRESS[scenario]
    result = blackbox.run([BUILD / "bin" / program, *arguments], env={"HAKMEM_HARDENED": "1"})
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
for i in $(seq 100); do [ -S "$1/redis.sock" ] && break; sleep 0.05; done
seq 20000 | awk '{ printf "SET key:%d %s\\nLPUSH list:%d %d\\n", $1, $1 * $1, $1 % 100, $1 }' | redis-cli -s "$1/redis.sock" | sort | uniq -c | wc -l
redis-cli -s "$1/redis.sock" eval "local n = 0 for i = 1, 20000 do n = n + redis.call('GET', 'key:' .. i) end return n" 0
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_real_programs_print_the_same(way, program):
    preload, environment = WAYS[way]
    plain = blackbox.run(PROGRAMS[program], cwd=HERE)
    hardened = blackbox.run(PROGRAMS[program], preload=preload, env=environment, cwd=HERE)
    assert (hardened.status, hardened.stdout, hardened.stderr) == (plain.status, plain.stdout, plain.stderr)


def test_redis_answers_the_same(tmp_path):
    said = []
    for name, preload in (("plain", None), ("secure", SECURE)):
        (tmp_path / name).mkdir()
        result = blackbox.run(["sh", "-c", REDIS, "sh", tmp_path / name], preload=preload)
        assert result.status == 0 and "hakmem" not in result.stderr, result.report()
        said.append(result.stdout)
    assert said[0] == said[1] and "2666866670000" in said[0]


@pytest.mark.parametrize("name", ["CANARY", "ZERO", "QUARANTINE", "RANDOM", "PROTECT", "NOTHING"])
def test_stress_without_one_mechanism(name):
    result = blackbox.run([BUILD / "bin" / "differential", "--calls", "10000"],
                          env={"HAKMEM_HARDENED": "1", f"HAKMEM_HARDEN_{name}": "0"})
    assert result.status == 0 and f"HAKMEM_HARDEN_{name}" in result.stderr, result.report()


# ---- Settings ----

WEAKER = ["HAKMEM_HARDENED", "HAKMEM_HARDEN_CANARY", "HAKMEM_HARDEN_ZERO", "HAKMEM_HARDEN_QUARANTINE",
          "HAKMEM_HARDEN_RANDOM",
          "HAKMEM_HARDEN_NEIGHBOURS", "HAKMEM_HARDEN_PATROL", "HAKMEM_HARDEN_NOTHING", "HAKMEM_HARDEN_PROTECT",
          "HAKMEM_HARDEN_OPERATORS", "HAKMEM_ABORT_ON_MISUSE"]


def test_the_environment_does_not_weaken_the_secure_library(misused):
    for name in WEAKER:
        result = misused("secure", "overflow_1", 100, {name: "0"})
        refusal, message = result.stderr.splitlines()
        assert refusal == f"hakmem: {name}=0 ignored: libhakmem-secure cannot be weakened by the environment", result.report(
        )
        assert re.search(PAST_END, message) and result.status == -signal.SIGABRT, result.report()


def test_the_environment_may_strengthen_it(misused):
    result = misused("secure", "read_after_free", 100, {"HAKMEM_HARDEN_QUARANTINE": "256K"})
    assert (result.status, result.stderr) == (0, ""), result.report()


def test_switches_turn_single_mechanisms_off(misused):
    assert misused("switch", "overflow_1", 100, {"HAKMEM_HARDEN_CANARY": "0"}).status == 0
    assert misused("switch", "write_after_free", 1000, {"HAKMEM_HARDEN_ZERO": "0"}).status == 0
    assert "secret" in misused("switch", "read_after_free", 1000, {"HAKMEM_HARDEN_ZERO": "0"}).stdout
    assert misused("switch", "read_after_free", 2000000, {"HAKMEM_HARDEN_PROTECT": "0"}).status == 0
    # A switch turns off only its own mechanism: the second free is caught without them. What is off is said first.
    names = WEAKER[1:-1]
    result = misused("switch", "double_between", 100, {name: "0" for name in names})
    assert result.stderr.startswith(off(*names)) and result.stderr.count("\n") == len(names) + 1, result.report()
    assert re.search(rf"free\(.*{FREED}", result.stderr) and result.status == -signal.SIGABRT, result.report()


@pytest.mark.parametrize("way", WAYS)
def test_calloc_of_a_huge_block_touches_no_page_of_it(compiled, way):
    """Only the page with the canary behind the program's bytes, if the program's last page is whole."""
    preload, environment = WAYS[way]
    result = blackbox.run([compiled(HERE / "untouched.c", "-O1")], preload=preload, env=environment)
    assert result.status == 0 and result.stderr == "", result.report()
    counts = [int(word) for word in result.stdout.split()]
    assert len(counts) == 9 and max(counts) <= 1, counts


@pytest.mark.parametrize("way", [None, *WAYS])
def test_a_library_that_calls_its_own_operators(compiled, way):
    """rustc's libLLVM is one. rust-lld's inline functions free its blocks by the operator that the linker finds first."""
    source = HERE / "run_time_inside.cpp"
    library = compiled(source, "-O1", "-fPIC", "-shared", "-DLIBRARY", "-Wl,-Bsymbolic")
    program = compiled(source, "-O1", "-w", library, f"-Wl,-rpath,{library.parent}")
    preload, environment = WAYS[way] if way else (None, {})
    result = blackbox.run([program], preload=preload, env=environment)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
