"""Runs programs under the cycle profile and reads its figures."""

import json
from dataclasses import dataclass

import blackbox

MALLOC = ("malloc_hit", "malloc_miss", "malloc_large", "malloc_huge")
FREE = ("free_hit", "free_miss", "free_large", "free_huge", "free_null")
OTHERS = ("heap_malloc", "realloc_stay", "realloc_move", "malloc_batch", "free_batch")
PARTS = ("refill", "flush", "remote", "drain")
CALLS = MALLOC + FREE + OTHERS
KINDS = CALLS + PARTS


@dataclass(frozen=True)
class Change:
    """The counts between two profiles of a process, by kind and in total."""

    kinds: dict

    @property
    def mallocs(self):
        return sum(self.kinds[kind] for kind in MALLOC)

    @property
    def calls(self):
        """{kind of call: number}, for calls that were made."""
        return {kind: self.kinds[kind] for kind in CALLS if self.kinds[kind]}

    @property
    def frees(self):
        return sum(self.kinds[kind] for kind in FREE)


def run(argv, form="json", cap=128, **arguments):
    """Runs under the profile to a normal end, with stacks of `cap` blocks. Deep bins would serve nearly all calls."""
    result = blackbox.run(argv, preload=blackbox.LIBRARY, env={"HAKMEM_TINY_PROFILE": form, "HAKMEM_FC_CAP": str(cap)},
                          **arguments)
    assert result.status == 0, result.report()
    return result


def documents(text):
    """The JSON documents in a program's output, in order."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"hakmem_cycles"')]


def change(before, after):
    return Change({kind: after["kinds"][kind]["count"] - before["kinds"][kind]["count"] for kind in KINDS})
