"""The tools of the HAKMEM memory allocator, and what a Python process that runs on it can ask of it:

    hakmem.stats()            where its memory is
    hakmem.profile()          what a part of it allocates, as a context manager
    hakmem.labels()           what its thread works on, as a context manager: samples carry it
    hakmem.Scope, .within()   a tenant with a cap, and a context manager for what belongs to it
    hakmem.heap_snapshot()    what is in use, by site, while a profile is taken

A process that does not run on HAKMEM gets a hakmem.NotActive, whose text says how to start it.
"""

from __future__ import annotations

INSIDE = ("Heap", "NotActive", "heap_snapshot", "is_active", "labels", "profile", "stats")
SCOPES = ("Scope", "within")
__all__ = list(INSIDE + SCOPES)


def __getattr__(name: str) -> object:
    """Imports the names of inside.py and scopes.py at their first use: the tools do not need them."""
    if name in INSIDE:
        from hakmem import inside

        return getattr(inside, name)
    if name in SCOPES:
        from hakmem import scopes

        return getattr(scopes, name)
    raise AttributeError(f"module 'hakmem' has no attribute {name!r}")
