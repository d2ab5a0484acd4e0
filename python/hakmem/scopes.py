"""Scopes for a Python process that runs on HAKMEM: tenants with a cap in bytes. docs/scopes.md explains them.

Python keeps and shares what it allocates anywhere, so a scope's end never frees blocks: they live on until Python frees
them."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import lru_cache
from threading import RLock, get_ident

from hakmem.inside import library

KEEP = 2  # enum hak_scope_blocks
NUMBERS = ("number", "parent", "live", "own", "held", "peak", "cap", "soft", "refused", "threads", "closed")
TOLD = ("live", "own", "held", "peak", "cap", "refused", "threads")


class ScopeStats(ctypes.Structure):
    """struct hak_scope_stats, without the name at its end."""

    _fields_ = [(name, ctypes.c_uint64) for name in NUMBERS]


@lru_cache(maxsize=1)
def scoping() -> ctypes.CDLL:
    """Returns the library with the functions for scopes; raises NotActive if this process's malloc is another one."""
    here = library()
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    here.hak_scope_new.argtypes, here.hak_scope_new.restype = [ctypes.c_char_p, pointer, size], pointer
    here.hak_scope_set_cap.argtypes, here.hak_scope_set_cap.restype = [pointer, size], None
    here.hak_scope_get.argtypes, here.hak_scope_get.restype = [pointer, ctypes.POINTER(ScopeStats), size], size
    here.hak_scope_resident.argtypes, here.hak_scope_resident.restype = [pointer], size
    here.hak_scope_destroy.argtypes, here.hak_scope_destroy.restype = [pointer, ctypes.c_uint], ctypes.c_int
    here.hak_scope_enter.restype = ctypes.c_int
    here.hak_scope_leave.restype = None  # without argtypes: within() says why
    here.hak_scope_current.argtypes, here.hak_scope_current.restype = [], pointer
    return here


def checked_cap(cap: int) -> int:
    """Returns the cap if it is one."""
    if not isinstance(cap, int) or not 0 <= cap < 1 << 63:
        raise ValueError(f"cap={cap!r}: bytes are wanted, or 0 for no cap")
    return cap


class Scope:
    """A tenant with a name (1 to 47 printable ASCII characters without " and \\), and a cap in bytes, 0 for none. What
    a thread allocates in `with within(scope):` belongs to it, and counts in its parent, too. It ends with close(), or
    with its last reference."""

    def __init__(self, name: str, cap: int = 0, parent: Scope | None = None) -> None:
        self._pointer: int | None = None
        self._here, self._parent, self._lock = scoping(), parent, RLock()
        data = name.encode("utf-8", "surrogateescape")
        if b"\0" in data:
            raise ValueError(f"{name!r} is no name of a scope")
        if parent is None:
            self._pointer = self._here.hak_scope_new(data, None, checked_cap(cap))
        else:
            with parent._lock:
                self._pointer = self._here.hak_scope_new(data, parent._open(), checked_cap(cap))
        if self._pointer is None:
            number = ctypes.get_errno()
            if number == errno.ENOMEM:
                raise MemoryError("no memory for a scope")
            raise ValueError(f"{name!r} is no name of a scope: {os.strerror(number)}")

    def _open(self) -> int:
        """Returns the hak_scope_t. Under the lock, which keeps close() away until the caller has used it."""
        if self._pointer is None:
            raise ValueError("the scope is closed")
        return self._pointer

    def set_cap(self, cap: int) -> None:
        """Changes the cap. Blocks stay if they have more: then allocations fail until they have less."""
        with self._lock:
            self._here.hak_scope_set_cap(self._open(), checked_cap(cap))

    def stats(self) -> dict[str, int]:
        """Returns {name: value}: live, own, held, peak, cap, refused, threads, as in docs/scopes.md."""
        found = ScopeStats()
        with self._lock:
            self._here.hak_scope_get(self._open(), ctypes.byref(found), ctypes.sizeof(found))
        return {name: getattr(found, name) for name in TOLD}

    def resident(self) -> int:
        """Returns the resident bytes of its memory, and of that of the scopes below. Asks the kernel."""
        with self._lock:
            found: int = self._here.hak_scope_resident(self._open())
        return found

    def close(self) -> None:
        """Ends the scope. Its blocks live on, and count in its parent until Python frees them. Raises OSError if a
        thread is in it, or a scope below it is open."""
        with self._lock:
            number = self._here.hak_scope_destroy(self._pointer, KEEP)
            if number:
                raise OSError(number, "a thread is in the scope, or a scope below it is open")
            self._pointer = None

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self._here.hak_scope_destroy(self._pointer, KEEP)


class within:  # noqa: N801, as contextlib's
    """`with within(scope):` keeps the thread in the scope during the body; within(None) in none, for what outlives the
    tenant. The body must not await or yield: other tasks would run in the scope."""

    def __init__(self, scope: Scope | None) -> None:
        self._here, self._scope, self._thread = scoping(), scope, 0
        self._around: int | None = None
        self._argument: tuple[object, ...] = ()
        self._leave = self._here.hak_scope_leave

    def __enter__(self) -> None:
        if self._thread:
            raise RuntimeError("this within() is in use: make another one")
        thread, self._around = get_ident(), self._here.hak_scope_current()
        if self._scope is None:
            self._go_in(None)
        else:
            with self._scope._lock:
                self._go_in(self._scope._open())
        self._thread = thread

    def _go_in(self, pointer: int | None) -> None:
        # A scope that is full refuses Python the memory for a call, too. With this argument, which is converted
        # already, the call that leaves needs none.
        self._argument = (ctypes.c_void_p.from_param(pointer),)
        number = self._here.hak_scope_enter(*self._argument)
        if number == errno.ENOMEM:
            raise MemoryError("no memory to enter a scope")
        if number:
            raise OSError(number, f"the scope could not be entered: {os.strerror(number)}")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave(*self._argument)
        thread, self._thread = self._thread, 0
        if thread != get_ident() or self._here.hak_scope_current() != self._around:
            raise RuntimeError("the scope was left in another thread, or after a scope around it was left: the body "
                               "of within() must not await or yield")
