"""Takes from a process what a container takes: capabilities, and system calls by seccomp (Docker's default, stricter).

A refused call fails with the errno that a real system gives: EPERM; EINVAL for advice that an older kernel does not
know; EAFNOSUPPORT for IPv6; ENOSYS for clone3, after which the C library calls clone.
"""

import ctypes
import errno
import os
import platform
import struct

# Docker's default set: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW,
# SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP. SYS_ADMIN, SYS_PTRACE, SYS_NICE, SYS_RESOURCE and NET_ADMIN are not in it.
KEPT = sum(1 << each for each in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))

# System calls of x86-64 that fail with EPERM.
REFUSED = {
    "ptrace": 101, "personality": 135, "pivot_root": 155, "mount": 165, "umount2": 166, "set_mempolicy": 238,
    "get_mempolicy": 239, "mbind": 237, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256,
    "unshare": 272, "move_pages": 279, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "userfaultfd": 323,
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442,
}
PERSONALITY, CLONE, CLONE3, SOCKET, MADVISE = 135, 56, 435, 41, 28
NEW_NAMESPACES = 0x7E020000
# MADV_HUGEPAGE, MADV_COLLAPSE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE.
ADVICE = (14, 25, 102, 103)
AF_INET6 = 10
# What a program may ask personality() for: the present one, and Linux's own.
PERSONALITIES = (0xFFFFFFFF, 0)

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ARCHITECTURE, NUMBER = 4, 0
X86_64 = 0xC000003E
ALLOW, FAIL = 0x7FFF0000, 0x00050000

PR_SET_SECCOMP, PR_CAPBSET_DROP, SECCOMP_MODE_FILTER = 22, 24, 2
CAPABILITY_VERSION_3 = 0x20080522


def argument(index: int) -> int:
    """Returns the offset of an argument's lower half in seccomp's data."""
    return 16 + 8 * index


def step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    """Returns one instruction: the jumps count the instructions to leave out."""
    return struct.pack("HBBI", code, true, false, value)


def fail(number: int) -> bytes:
    """Returns the instruction that makes the call fail."""
    return step(RETURN, FAIL | number)


def case(number: int, body: list[bytes]) -> list[bytes]:
    """Returns the body, run for this system call only."""
    return [step(LOAD, NUMBER), step(EQUAL, number, 0, len(body)), *body]


def on_values(index: int, values: tuple[int, ...], code: int, number: int, others: bool = False) -> list[bytes]:
    """Returns a body: the call fails if the argument has one of the values, or with `others` if it has none."""
    body = [step(LOAD, argument(index))]
    for left, value in zip(range(len(values), 0, -1), values, strict=True):
        body.append(step(code, value, left, 0))
    yes, no = (step(RETURN, ALLOW), fail(number)) if others else (fail(number), step(RETURN, ALLOW))
    return [*body, no, yes]


def program() -> bytes:
    """Returns the filter."""
    steps = [step(LOAD, ARCHITECTURE), step(EQUAL, X86_64, 1, 0), fail(errno.ENOSYS)]
    for name, number in REFUSED.items():
        if name != "personality":
            steps += case(number, [fail(errno.EPERM)])
    steps += case(PERSONALITY, on_values(0, PERSONALITIES, EQUAL, errno.EPERM, others=True))
    steps += case(CLONE, on_values(0, (NEW_NAMESPACES,), ANY_BIT, errno.EPERM))
    steps += case(CLONE3, [fail(errno.ENOSYS)])
    steps += case(SOCKET, on_values(0, (AF_INET6,), EQUAL, errno.EAFNOSUPPORT))
    steps += case(MADVISE, on_values(2, ADVICE, EQUAL, errno.EINVAL))
    return b"".join([*steps, step(RETURN, ALLOW)])


def enter() -> None:
    """Confines this process and all that it starts. The process must have all capabilities."""
    if platform.machine() != "x86_64":
        raise SystemExit("rooms: the numbers of system calls are those of x86-64")
    libc = ctypes.CDLL(None, use_errno=True)

    def succeed(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    for each in range(64):
        if not KEPT >> each & 1 and libc.prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0:
            break  # beyond the kernel's last
    code = program()
    steps = ctypes.create_string_buffer(code, len(code))
    filter_of = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(steps)), 16)
    succeed(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_of, 0, 0))
    low, high = KEPT & 0xFFFFFFFF, KEPT >> 32
    header, sets = struct.pack("Ii", CAPABILITY_VERSION_3, 0), struct.pack("6I", low, low, 0, high, high, 0)
    succeed(libc.capset(header, sets))
