"""Finds the instructions that malloc and free execute on a fast hit, and classifies them."""

import re
import tempfile
from collections import Counter
from pathlib import Path

from subject import HERE, REPOSITORY, CheckError, Subject, run

DRIVERS = REPOSITORY / "bench/drivers"
FASTPATH = ("malloc", "free", "hak_free_sized")
FASTPATH_SIZES = (16, 64, 256, 1024)
FASTPATH_ROWS = tuple(f"{function} {size}" for function in FASTPATH for size in reversed(FASTPATH_SIZES))
ENTRIES = ("calloc", "realloc", "realloc_3_more", "malloc_usable_size", "aligned_alloc_64", "posix_memalign_32",
           "memalign_4096", "reallocarray", "new", "delete", "delete_sized", "nallocx", "sallocx", "sdallocx",
           "hak_usable_size")
ENTRY_SIZES = (64, 5000, 100000, 2000000)
# Calls for huge blocks that take or free one may meet a tick, and calloc fills.
HUGE_LOOKS = ("realloc", "realloc_3_more", "malloc_usable_size", "nallocx", "sallocx", "hak_usable_size")
ENTRY_ROWS = tuple(f"{function} {size}" for function in ENTRIES for size in ENTRY_SIZES
                   if (function != "calloc" or size <= 10000) and (size <= 1 << 20 or function in HUGE_LOOKS))
# Larger blocks are looked at whole or at their edges, by chance.
SEALED_SIZES = (16, 64, 112)
SEALED_ROWS = tuple(f"{function} {size}" for function in ("malloc", "free", "hak_free_sized")
                    for size in reversed(SEALED_SIZES))
FASTPATH_COLUMNS = ("instructions", "branches", "jumps", "calls", "pushes", "loads", "stores", "hits")
NO_READ_OF_TARGET = re.compile(r"^(v?mov|set|lea|v?stmxcsr|fst)")
NO_WRITE_OF_TARGET = re.compile(r"^(cmp|test|bt[bwlq]?$|ucomis|comis|push|call|jmp|prefetch|mul|imul|div|idiv)")
PREFIX = re.compile(r"^(?:(?:lock|rep|repz|repnz|data16|cs|ds|es|ss|notrack|bnd) )+")


def count_instruction(text, counts):
    """Adds one instruction in objdump's AT&T syntax to the counts. Only memory operands count as loads and stores, not
    the stack accesses of call, push, pop and ret."""
    text = PREFIX.sub("", text.split("#")[0].split("<")[0].strip())
    name, _, operands = text.partition(" ")
    counts["instructions"] += 1
    if name.startswith("jmp"):
        counts["jumps"] += 1
    elif name.startswith("j"):
        counts["branches"] += 1
    counts["calls"] += name.startswith("call")
    counts["pushes"] += name.startswith("push")
    if name.startswith(("lea", "nop", "endbr")):
        return
    parts = re.split(r",(?![^(]*\))", operands.strip()) if operands.strip() else []
    memory = [("(" in part or "%fs:" in part or "%gs:" in part) for part in parts]
    if not any(memory):
        return
    is_target = memory[-1]
    counts["loads"] += not is_target or not NO_READ_OF_TARGET.match(name)
    counts["stores"] += is_target and not NO_WRITE_OF_TARGET.match(name)


def disassemble(library):
    """{offset: instruction} of the whole library."""
    listing = run(["objdump", "-d", "--no-show-raw-insn", "-w", library])
    found = re.findall(r"^\s+([0-9a-f]+):\t(.+?)\s*$", listing, re.MULTILINE)
    return {int(offset, 16): text for offset, text in found}


def trace_calls(subject, sizes, compiler):
    """[(function, size, offsets)] of each watched call. The compiler is for the library's C library."""
    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as folder:
        tracer = Path(folder, "fastpath_trace")
        flags = ["-std=gnu17", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-I", DRIVERS]
        run([compiler, *flags, HERE / "fastpath_trace.c", "-o", tracer])
        output = run([tracer, subject.library, *sizes])
    calls = []
    for line in output.splitlines():
        function, size, _, *offsets = line.split(" ")
        if not offsets or not offsets[0]:
            raise CheckError(f"{function}({size}) runs nothing in {subject.library}: it is not the program's malloc")
        calls.append((function, int(size), tuple(int(offset, 16) for offset in offsets[0].split(","))))
    return calls


def fast_hits(subject, sizes=FASTPATH_SIZES, compiler="cc"):
    """{(function, size): (offsets, "hits/calls")}: the sequence that most calls took."""
    groups = {}
    for function, size, offsets in trace_calls(subject, sizes, compiler):
        groups.setdefault((function, size), []).append(offsets)
    hits = {}
    for key, sequences in groups.items():
        common, number = Counter(sequences).most_common(1)[0]
        hits[key] = (common, f"{number}/{len(sequences)}")
    return hits


def measure_fastpath(subject, wanted=None, functions=FASTPATH, **chosen):
    instructions = disassemble(subject.library)
    rows = {}
    for (function, size), (offsets, hits) in sorted(fast_hits(subject, **chosen).items(), reverse=True):
        if function not in functions:
            continue
        counts = Counter()
        for offset in offsets:
            count_instruction(instructions[offset], counts)
        counts["hits"] = hits
        rows[f"{function} {size}"] = {column: str(counts[column]) for column in FASTPATH_COLUMNS}
    return {row: value for row, value in rows.items() if wanted is None or row in wanted}


def show_fastpath(subject):
    instructions = disassemble(subject.library)
    for (function, size), (offsets, hits) in sorted(fast_hits(subject).items()):
        print(f"{function}({size}), {hits} calls, {len(offsets)} instructions:")
        for offset in offsets:
            print(f"  {offset:7x}  {instructions[offset]}")


def measure_sealed(subject, wanted=None):
    secure = subject.library.parent / "libhakmem-secure.so"
    if not secure.exists():
        raise CheckError(f"{secure} is not there; build it with ./hakmem build")
    return without_hits(measure_fastpath(Subject(secure.resolve(), subject.programs), wanted, sizes=SEALED_SIZES))


def without_hits(rows):
    """The rows without how many of the calls took the common path: chance or a tick may decide that."""
    return {row: {column: value for column, value in columns.items() if column != "hits"}
            for row, columns in rows.items()}


def measure_entries(subject, wanted=None):
    rows = measure_fastpath(subject, wanted, functions=ENTRIES, sizes=ENTRY_SIZES)
    return without_hits({row: rows[row] for row in ENTRY_ROWS if row in rows})


def fastpath_limits(rows):
    return [f"{row}: {value[column]} {column} on a fast hit; there must be none"
            for row, value in rows.items() for column in ("calls", "pushes") if value[column] != "0"]
