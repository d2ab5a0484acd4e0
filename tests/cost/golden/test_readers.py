"""Protects the readers of disassembly and of strace's log, and the limits of system calls."""

from collections import Counter

import fast_path
import memory_calls
import pytest


@pytest.mark.parametrize("text, expected", [
    ("mov    %rdi,%rcx", {}),
    ("mov    %fs:0x0,%r8", {"loads": 1}),
    ("mov    0x18(%rax,%rdx,8),%rcx", {"loads": 1}),
    ("mov    %rcx,(%rax)", {"stores": 1}),
    ("movq   $0x0,0x20(%rsi)", {"stores": 1}),
    ("movups %xmm0,(%rax)", {"stores": 1}),
    ("movups (%rax),%xmm0", {"loads": 1}),
    ("subl   $0x1,0x18(%rsi)", {"loads": 1, "stores": 1}),
    ("lock xadd %eax,(%rdi)", {"loads": 1, "stores": 1}),
    ("incl   (%rax)", {"loads": 1, "stores": 1}),
    ("sete   (%rax)", {"stores": 1}),
    ("cmpb   $0x0,0xe(%rsi)", {"loads": 1}),
    ("cmp    %rax,0x8(%rdi)", {"loads": 1}),
    ("cmovb  0x10(%rax),%rdx", {"loads": 1}),
    ("lea    0x8(%rax,%rdx,1),%rcx", {}),
    ("nopw   0x0(%rax,%rax,1)", {}),
    ("mov    0x2ed3a(%rip),%rax        # 3fff0 <hak_tls@GOTTPOFF>", {"loads": 1}),
    ("je     10f50 <free+0x70>", {"branches": 1}),
    ("jmp    10550 <front_malloc_slow>", {"jumps": 1}),
    ("notrack jmp *0x8(%rax)", {"jumps": 1, "loads": 1}),
    ("call   10550 <front_malloc_slow>", {"calls": 1}),
    ("push   %rbx", {"pushes": 1}),
    ("ret", {}),
])
def test_count_instruction(text, expected):
    counts = Counter()
    fast_path.count_instruction(text, counts)
    assert +counts == Counter({"instructions": 1, **expected})


def test_stack_calls_are_left_out():
    log = """\
7 mmap(NULL, 8392704, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_STACK, -1, 0 <unfinished ...>
8 mmap(NULL, 65536, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000a00000
7 <... mmap resumed>) = 0x7f0000000000
7 mprotect(0x7f0000001000, 8388608, PROT_READ|PROT_WRITE) = 0
9 madvise(0x7f0000100000, 8368128, MADV_DONTNEED <unfinished ...>
7 mprotect(0x7f0000a00000, 4096, PROT_NONE <unfinished ...>
9 <... madvise resumed>) = 0
7 <... mprotect resumed>) = 0
7 munmap(0x7f0000000000, 8392704) = 0
7 madvise(0x7f0000100000, 4096, MADV_DONTNEED) = -1 ENOMEM (Cannot allocate memory)
7 brk(NULL) = 0x555555559000
"""
    assert memory_calls.count_memory_calls(log) == Counter(mmap=1, mprotect=1, madvise=1, brk=1)


def test_limits():
    assert fast_path.fastpath_limits({"free 16": {"calls": "1", "pushes": "0"}})
    zero = dict.fromkeys(memory_calls.MEMORY_CALLS, "0")
    row = "random_mixed 200000 4096"
    assert not memory_calls.syscall_limits({row: {**zero, "total": "16"}})
    assert memory_calls.syscall_limits({row: {**zero, "total": "17"}})


def test_limits_stand_for_what_timing_decides():
    zero = dict.fromkeys(memory_calls.MEMORY_CALLS, "0")
    rows = {"random_mixed 200000 4096": {"total": "11", **zero}, "phases of 200 threads": {"total": "43", **zero}}
    frozen = memory_calls.freeze_syscalls(rows)
    assert frozen["random_mixed 200000 4096"]["total"] == "11"
    assert frozen["phases of 200 threads"] == {**dict.fromkeys(memory_calls.MEMORY_CALLS, "-"), "total": "<=200"}
