"""Findings on the machine: whether the kernel offers what HAKMEM asks for."""

from __future__ import annotations

from pathlib import Path

from hakmem.doctor.findings import Finding, share_text
from hakmem.doctor.system import chosen, kernel_version, meminfo, read_number, read_text
from hakmem.units import bytes_text

DEFAULT_MAP_COUNT = 65530
POPULATE_SINCE = (5, 14)
NAMES_SINCE = (5, 17)


def check_machine(root: Path) -> list[Finding]:
    """Returns all findings on the machine."""
    return [*check_kernel(root), *check_huge_pages(root), *check_map_count(root), *check_overcommit(root),
            *check_swap(root), *check_ptrace(root)]


def check_kernel(root: Path) -> list[Finding]:
    """Checks the kernel's version."""
    version, text = kernel_version(root)
    if version is None:
        return [Finding("warning", "kernel", f"its version cannot be told from '{text}'",
                        "look into /proc/sys/kernel/osrelease")]
    if version < POPULATE_SINCE:
        return [Finding("note", "kernel", f"{text} has no MADV_POPULATE_WRITE: slabs are faulted in page by page",
                        "a kernel from 5.14 on makes fresh memory cheaper; HAKMEM works without it")]
    if version < NAMES_SINCE:
        return [Finding("ok", "kernel",
                        f"{text} has MADV_POPULATE_WRITE; it names no mappings (that begins with 5.17)")]
    return [Finding("ok", "kernel", f"{text} has MADV_POPULATE_WRITE and names for mappings")]


def check_huge_pages(root: Path) -> list[Finding]:
    """Checks the setting of transparent huge pages."""
    folder = root / "sys/kernel/mm/transparent_hugepage"
    mode = chosen(read_text(folder / "enabled"))
    defrag = chosen(read_text(folder / "defrag"))
    if mode is None:
        found = [Finding("note", "huge pages", "the kernel has no transparent huge pages",
                         "nothing to do; large heaps are a little slower without them")]
    elif mode == "never":
        found = [Finding("note", "huge pages", "transparent huge pages are off on this machine: HAKMEM_THP has "
                         "no effect",
                         "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")]
    elif mode == "always":
        found = [Finding("note", "huge pages", "transparent huge pages are on for all memory: stacks and libraries' "
                         "own mappings may take more than they use; HAKMEM keeps its small heaps out of it",
                         "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")]
    else:
        found = [Finding("ok", "huge pages", f"the kernel gives transparent huge pages to programs that ask ({mode})")]
    if mode not in (None, "never") and defrag == "always":
        found.append(Finding("warning", "huge pages", "defrag is 'always': any page fault may wait until memory is "
                             "compacted",
                             "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/defrag"))
    return found


def check_map_count(root: Path) -> list[Finding]:
    """Checks the limit of mappings."""
    most = read_number(root / "proc/sys/vm/max_map_count")
    if most is None:
        return [Finding("note", "mappings", "vm.max_map_count cannot be read", "look into /proc/sys/vm/max_map_count")]
    if most < DEFAULT_MAP_COUNT:
        return [Finding("warning", "mappings", f"vm.max_map_count is {most}, below Linux's own {DEFAULT_MAP_COUNT}: "
                        "programs with many huge blocks or threads may run into it",
                        f"as root: sysctl -w vm.max_map_count={DEFAULT_MAP_COUNT}")]
    return [Finding("ok", "mappings", f"vm.max_map_count is {most}")]


def check_overcommit(root: Path) -> list[Finding]:
    """Checks how the kernel grants memory."""
    mode = read_number(root / "proc/sys/vm/overcommit_memory")
    if mode is None:
        return [Finding("note", "overcommit", "vm.overcommit_memory cannot be read",
                        "look into /proc/sys/vm/overcommit_memory")]
    if mode != 2:
        kind = {0: "by heuristics", 1: "always granted"}.get(mode, "unknown to this program")
        return [Finding("ok", "overcommit", f"mode {mode}: {kind}; HAKMEM maps what it uses and reserves "
                        "nothing")]
    memory = meminfo(root)
    limit, used = memory.get("CommitLimit", 0), memory.get("Committed_AS", 0)
    seen = (f"mode 2: memory that may be written counts at once, used or not; {bytes_text(used)} of "
            f"{bytes_text(limit)} are promised. HAKMEM maps what it uses and reserves nothing")
    if limit and used > 0.9 * limit:
        return [Finding("warning", "overcommit", seen, "as root: raise vm.overcommit_ratio or add swap; beyond the limit malloc "
                        "fails")]
    return [Finding("note", "overcommit", seen, "watch Committed_AS in /proc/meminfo: beyond CommitLimit malloc fails")]


def check_swap(root: Path) -> list[Finding]:
    """Checks available memory and swap."""
    memory = meminfo(root)
    total, free = memory.get("SwapTotal", 0), memory.get("SwapFree", 0)
    available, physical = memory.get("MemAvailable"), memory.get("MemTotal")
    found = []
    if available is not None and physical and available < 0.05 * physical:
        found.append(Finding("warning", "memory", f"{bytes_text(available)} of {bytes_text(physical)} are available",
                             "HAKMEM_MEMORY_LIMIT bounds a process on HAKMEM; with HAKMEM_PURGE_DELAY=0 it gives freed "
                             "memory back at once"))
    if total and free < 0.5 * total:
        found.append(Finding("warning", "swap", f"{share_text(total - free, total)} of {bytes_text(total)} are in use: "
                             "what was swapped out comes back page by page",
                             "free memory or add some; see what swaps with `vmstat 1`"))
    elif total:
        found.append(Finding("ok", "swap", f"{share_text(total - free, total)} of {bytes_text(total)} are in use"))
    else:
        found.append(Finding("ok", "swap", "there is none"))
    return found


def check_ptrace(root: Path) -> list[Finding]:
    """Checks who may look into processes."""
    scope = read_number(root / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None or scope == 0:
        return [Finding("ok", "looking inside", "any user may look into processes of their own")]
    who = {1: "a process's parents", 2: "root"}.get(scope, "nobody")
    return [Finding("note", "looking inside", f"kernel.yama.ptrace_scope is {scope}: only {who} may look into a "
                    "process",
                    "run hakmem's stats, top and doctor as root, or as root: sysctl -w kernel.yama.ptrace_scope=0")]
