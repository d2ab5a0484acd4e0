"""Says what this machine lets a test do. Each ability is tried once, by the calls that the tests make.

    @machine.needs("ptrace", "program:gdb")     a test, or a parameter: pytest.param(..., marks=machine.needs(...))
    machine.require("unshare:mount")            inside a test or a fixture

A test that starts a program of another package by its name needs no mark: conftest.py skips it if the start fails.
A test is skipped only for what the machine cannot do, with the system call and its error as the reason. In
`./hakmem test --all`, which installs all programs (TEST_COMPLETE), a missing program is a failure instead.
"""

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import sys

PTRACE_TRACEME = 0
MADV_GUARD_INSTALL = 102
MLOCK_ONFAULT = 1
PR_GET_NO_NEW_PRIVS = 39
UNSHARE_OPTIONS = {"mount": "--mount", "time": "--time"}
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.process_vm_readv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, *[ctypes.c_ulong] * 2]
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.madvise.argtypes = LIBC.mlock2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def error(call):
    """The reason that a C function's failure gives, from its errno."""
    return f"{call}: {errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())}"


def lacks_root():
    return None if os.geteuid() == 0 else f"geteuid: {os.geteuid()}, not 0"


def lacks_ptrace():
    """A child asks to be traced, because this process may have a tracer."""
    tried = ("import ctypes, sys\n"
             "libc = ctypes.CDLL(None, use_errno=True)\n"
             f"sys.exit(ctypes.get_errno() if libc.ptrace({PTRACE_TRACEME}, 0, 0, 0) else 0)")
    number = subprocess.run([sys.executable, "-c", tried], check=False).returncode
    return f"ptrace(PTRACE_TRACEME): {errno.errorcode.get(number, number)}" if number else None


def lacks_process_vm_readv():
    """A child of fork, whose buffer lies where it lies here, stands for the process that a command reads."""
    here, there, waits = ctypes.create_string_buffer(b"1"), ctypes.create_string_buffer(1), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(waits[1])
        os.read(waits[0], 1)
        os._exit(0)
    pieces = [(ctypes.c_size_t * 2)(ctypes.addressof(each), 1) for each in (there, here)]
    done = LIBC.process_vm_readv(child, pieces[0], 1, pieces[1], 1, 0)
    reason = None if done == 1 else error("process_vm_readv")
    for each in waits:
        os.close(each)
    os.waitpid(child, 0)
    return reason


def lacks_unshare(kind):
    """In a user namespace of its own, as the tests do it. A mount is tried too: a container may refuse that alone."""
    words = ["unshare", "--map-root-user", UNSHARE_OPTIONS[kind], "--fork"]
    inner = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"] if kind == "mount" else ["true"]
    tried = subprocess.run([*words, *inner], capture_output=True, text=True, check=False,
                           env={**os.environ, "LC_ALL": "C"})
    return None if tried.returncode == 0 else (tried.stderr.strip() or f"unshare: status {tried.returncode}")


def lacks_on_memory(name, mib, call):
    """The reason if the call, which gets fresh memory and its size, fails."""
    memory = LIBC.mmap(None, mib << 20, 3, 0x22, -1, 0)
    reason = error(name) if call(memory, mib << 20) else None
    LIBC.munmap(memory, mib << 20)
    return reason


def lacks_guards():
    """Linux before 6.13 has no such advice, and a container may refuse it."""
    return lacks_on_memory("madvise(MADV_GUARD_INSTALL)", 1, lambda *memory: LIBC.madvise(*memory, MADV_GUARD_INSTALL))


def lacks_lock():
    """Without CAP_IPC_LOCK, RLIMIT_MEMLOCK counts what mlockall would lock. Tests lock about 200 MiB."""
    return lacks_on_memory("mlock2 of 512 MiB", 512, lambda *memory: LIBC.mlock2(*memory, MLOCK_ONFAULT))


def lacks_setuid():
    """Whether a setuid program in /var/tmp gets the rights of its owner, who is this user."""
    if os.statvfs("/var/tmp").f_flag & os.ST_NOSUID:
        return "/var/tmp is mounted nosuid"
    return "prctl(PR_GET_NO_NEW_PRIVS): 1" if LIBC.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) else None


def lacks_program(name):
    return None if shutil.which(name) else f"{name} is not installed"


def lacks_library(name):
    """Whether a program can be linked to the file."""
    tried = subprocess.run(["gcc", "-shared", f"-l:{name}", "-o", os.devnull], capture_output=True, check=False)
    return f"{name} is not installed" if tried.returncode else None


PROBES = {
    "root": lacks_root,
    "ptrace": lacks_ptrace,
    "process_vm_readv": lacks_process_vm_readv,
    "unshare": lacks_unshare,
    "guards": lacks_guards,
    "lock": lacks_lock,
    "setuid": lacks_setuid,
    "program": lacks_program,
    "library": lacks_library,
}


@functools.cache
def lacks(ability):
    """Why the machine has not this ability: `root`, `unshare:KIND`, `program:NAME` etc. None if it has it."""
    kind, _, word = ability.partition(":")
    return PROBES[kind](word) if word else PROBES[kind]()


def lacking(abilities):
    """The reasons of all abilities that the machine has not, and that a test may be skipped for."""
    complete = "TEST_COMPLETE" in os.environ
    reasons = [lacks(each) for each in abilities if not (complete and each.startswith(("program:", "library:")))]
    return "; ".join(reason for reason in reasons if reason)


def needs(*abilities):
    """A mark for a test that needs all of these."""
    reason = lacking(abilities)
    import pytest

    return pytest.mark.skipif(bool(reason), reason=reason or "nothing is lacking")


def require(*abilities):
    """Skips the running test if the machine has not all of these."""
    if reason := lacking(abilities):
        import pytest

        pytest.skip(reason)


def require_program(failure):
    """Skips the running test if a FileNotFoundError of subprocess names a program that is not installed."""
    name = str(failure.filename)
    if "/" not in name:
        require(f"program:{name}")
