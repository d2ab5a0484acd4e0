"""Says when free memory that waits leaves a process, and who sees to it, by the rules of src/superslab/waiting.h and
src/front/purge_thread.c."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hakmem.live.memory import ProcessMemory

# The purge thread's name, and HAKMEM_PURGE_THREAD=always by its number in the library.
THREAD, ALWAYS = "hakmem-purge", 2
# Who gives back what waits.
AT_ONCE, BY_CLOCK, AT_REST, BY_CALLS = "at once", "by clock", "at rest", "by calls"
# What may wait in a process without a purge thread, and before the thread works (WAITING_SPARE).
SPARE = "16 MiB"


@dataclass
class Departure:
    """When what waits leaves. who: one of the above."""

    who: str
    delay_ms: int

    def text(self) -> str:
        """Returns sentences."""
        if self.who == AT_ONCE:
            return "Free memory does not wait: with HAKMEM_PURGE_DELAY=0 it leaves at once."
        if self.who == BY_CLOCK:
            return f"What waits leaves {self.delay_ms} ms after it was freed: the purge thread sees to it."
        call = (f"at a thread's call that its cache cannot serve, with what that cache holds, from {self.delay_ms} ms "
                "after it was freed on")
        if self.who == AT_REST:
            return (f"What waits leaves {call}. If {SPARE} and more wait, they leave as soon as all threads rest: the "
                    "purge thread sees to it.")
        return (f"No purge thread runs. What waits leaves {call}; more than {SPARE} and a quarter of the memory in use "
                "leaves when it is freed, unless it was wanted again within that time before. A process that makes no "
                "such call keeps it: malloc_trim(0) or HAKMEM_PURGE_THREAD=always gives it back.")


def departure(options: dict[str, int | str | None], thread: bool) -> Departure:
    """Returns the Departure by the library's options. thread: whether there is a purge thread."""
    delay, choice = options.get("purge_delay"), options.get("purge_thread")
    delay = delay if isinstance(delay, int) else 0
    if delay == 0:
        return Departure(AT_ONCE, 0)
    return Departure(BY_CALLS if not thread else BY_CLOCK if choice == ALWAYS else AT_REST, delay)


def departure_of(memory: ProcessMemory) -> Departure:
    """Returns the Departure of a process; raises LiveError if it does not run on HAKMEM."""
    from hakmem.live.descriptor import find

    descriptor = find(memory)
    options = descriptor.root(memory, "hak_options", "options")
    return departure({name: options[name] for name in ("purge_delay", "purge_thread")}, has_purge_thread(memory))


def has_purge_thread(memory: ProcessMemory) -> bool:
    """Returns whether the process has one."""
    try:
        return any(memory.thread_name(int(tid)) == THREAD for tid in os.listdir(f"/proc/{memory.pid}/task"))
    except OSError:
        return False
