"""Findings on what limits a process: resource limits, its cgroup, mappings, swap, huge pages, options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from hakmem.doctor.findings import Finding, share_text
from hakmem.doctor.linkmap import LoadedObject, preload_entries
from hakmem.doctor.system import cgroup_memory, read_number
from hakmem.phrases import plural
from hakmem.units import bytes_text

# Variables of the tools, which the library ignores.
TOOLS = {"HAKMEM_BUILD_DIR", "HAKMEM_PEERS_DIR", "HAKMEM_LIB"}
NEAR = 0.9  # of a limit
STATIC_TLS_SURPLUS = 512  # glibc's glibc.rtld.optional_static_tls, in bytes


def check_limits(limits: dict[str, int | None], status_bytes: Callable[[str], int | None]) -> list[Finding]:
    """Checks resource limits. limits: soft ones in bytes. status_bytes(name): bytes of a status line or None."""
    found = []
    for short, shown, used_name, why in (
            ("as", "RLIMIT_AS", "VmSize", "what HAKMEM has mapped counts, used or not"),
            ("data", "RLIMIT_DATA", "VmData", "what HAKMEM has mapped counts, used or not")):
        limit, used = limits.get(short), status_bytes(used_name)
        if limit is None:
            continue
        taken = f"{share_text(used, limit)} are taken; " if used is not None else ""
        seen = f"{shown} is {bytes_text(limit)}; {taken}{why}"
        near = used is not None and limit and used > NEAR * limit
        found.append(Finding("warning" if near else "note", "limits", seen,
                             f"raise it (ulimit -{'v' if short == 'as' else 'd'}) if malloc fails too early; "
                             "HAKMEM_MEMORY_LIMIT bounds memory instead of addresses"))
    locked = status_bytes("VmLck")
    if locked:
        limit = limits.get("memlock")
        seen = f"{bytes_text(locked)} are locked in memory" + (f", of {bytes_text(limit)}" if limit is not None else "")
        found.append(Finding("warning" if limit and locked > NEAR * limit else "note", "limits", seen +
                             "; locked memory is resident as soon as it is mapped",
                             "raise RLIMIT_MEMLOCK (ulimit -l), or lock only what must not be swapped"))
    return found or [Finding("ok", "limits", "no limit on address space or data; no memory is locked")]


def check_cgroup(root: Path, pid: int | str, environment: dict[str, str]) -> list[Finding]:
    """Checks the cgroup's memory limits."""
    group = cgroup_memory(root, pid)
    found = []
    if group.hard is not None:
        used = f", {share_text(group.used, group.hard)} are in use" if group.used is not None else ""
        seen = f"memory of {group.path} ends at {bytes_text(group.hard)}{used}"
        own_limit = "HAKMEM_MEMORY_LIMIT" in environment
        if group.used is not None and group.used > NEAR * group.hard:
            found.append(Finding("warning", "cgroup", seen, "raise the limit, or set HAKMEM_MEMORY_LIMIT_SOFT=auto: "
                                 "above 90 % of it freed memory is then given back at once"))
        elif own_limit:
            found.append(Finding("ok", "cgroup", seen + f"; HAKMEM_MEMORY_LIMIT={environment['HAKMEM_MEMORY_LIMIT']} "
                                 "is set"))
        else:
            found.append(Finding("note", "cgroup", seen + "; at its end the kernel kills a process of the group",
                                 "HAKMEM_MEMORY_LIMIT=auto makes malloc fail with ENOMEM instead"))
    if group.high is not None:
        above = group.used is not None and group.used > group.high
        found.append(Finding("warning" if above else "note", "cgroup", f"memory.high is {bytes_text(group.high)}: " +
                             ("the processes of the group are slowed down now" if above else "above it processes are "
                              "slowed down"),
                             "a HAKMEM_MEMORY_LIMIT_SOFT below it makes HAKMEM give freed memory back before that"))
    if group.kills:
        found.append(Finding("warning", "cgroup", f"the kernel has killed a process of the group because its "
                             f"memory ran out, {plural(group.kills, 'time')} so far",
                             "raise the limit, or set HAKMEM_MEMORY_LIMIT=auto in its processes"))
    return found or [Finding("ok", "cgroup", "no memory limit")]


def check_mappings(root: Path, count: int) -> list[Finding]:
    """Checks the number of mappings."""
    most = read_number(root / "proc/sys/vm/max_map_count")
    if most is None:
        return []
    seen = f"{count:,} mappings of at most {most:,}"
    if count > 0.95 * most:
        return [Finding("problem", "mappings", seen + ": at the limit mmap, mprotect and so malloc fail",
                        f"as root: sysctl -w vm.max_map_count={4 * most}")]
    if count > 0.8 * most:
        return [Finding("warning", "mappings", seen, f"as root: sysctl -w vm.max_map_count={4 * most}")]
    return [Finding("ok", "mappings", seen)]


def check_swapped(status_bytes: Callable[[str], int | None]) -> list[Finding]:
    """Checks how much is swapped out."""
    swapped, resident = status_bytes("VmSwap"), status_bytes("VmRSS") or 0
    if not swapped:
        return [Finding("ok", "swapped out", "nothing")]
    return [Finding("warning" if swapped > resident / 10 else "note", "swapped out", f"{bytes_text(swapped)}, beside "
                    f"{bytes_text(resident)} in memory: each page comes back from the disk when it is touched",
                    "free memory on the machine; with HAKMEM_PURGE_DELAY=0 freed memory goes before it is swapped out")]


def check_process_huge_pages(status: dict[str, str], environment: dict[str, str]) -> list[Finding]:
    """Checks whether the process has turned huge pages off."""
    wanted = environment.get("HAKMEM_THP", "auto")
    if status.get("THP_enabled") == "0":
        return [Finding("warning" if wanted == "always" else "note", "huge pages", "the process, or the one that "
                        "started it, has turned them off (PR_SET_THP_DISABLE)", "remove that prctl to have them")]
    return []


def check_options(environment: dict[str, str], known: set[str] | None,
                  judge: Callable[[dict[str, str]], list[Finding]]) -> list[Finding]:
    """Checks HAKMEM_* variables. known: names of options, or None if the library's file could not be read.
    judge(options): returns the findings on their values."""
    found: list[Finding] = []
    given = {name: value for name, value in environment.items() if name.startswith("HAKMEM_") and name not in TOOLS}
    if known:
        for name in sorted(set(given) - known):
            near = difflib.get_close_matches(name, known, 1, 0.8)
            found.append(Finding("warning", "options", f"{name}={given[name]} is no option of this build, and ignored",
                                 f"did you mean {near[0]}?" if near else "docs/options.md lists them"))
            del given[name]
    bad = judge(given)
    found += bad
    good = {name: value for name, value in given.items() if not any(names_option(each, name) for each in bad)}
    if good:
        shown = " ".join(f"{name}={value}" for name, value in sorted(good.items()))
        found.append(Finding("ok", "options", f"set: {shown}"))
    elif not found:
        found.append(Finding("ok", "options", "none set: the defaults hold"))
    found += check_purging(good)
    if others := sorted(name for name in environment if name.startswith("MALLOC_")):
        found.append(Finding("note", "options", f"{', '.join(others)} speak to glibc's malloc; HAKMEM does not read "
                             f"them",
                             "leave them out; docs/options.md says what there is"))
    return found


def names_option(finding: Finding, name: str) -> bool:
    """Returns whether the finding is about this option."""
    return finding.seen.startswith(f"{name}=")


def check_purging(options: dict[str, str]) -> list[Finding]:
    """Returns notes on the options that say when freed memory goes back to the system."""
    found = []
    delay, thread = options.get("HAKMEM_PURGE_DELAY"), options.get("HAKMEM_PURGE_THREAD")
    if delay == "0":
        found.append(Finding("note", "purging", "freed memory goes back at once: least memory, most system calls",
                             "a delay of some 100 ms spares most of the system calls"))
    elif delay and re.fullmatch(r"\d+", delay) and int(delay) > 60000:
        found.append(Finding("note", "purging", f"freed memory is kept for {int(delay) / 1000:.0f} s before it goes "
                             "back", "a shorter HAKMEM_PURGE_DELAY keeps less"))
    if thread == "never":
        found.append(Finding("note", "purging", "no purge thread: a process that is wholly idle keeps what it freed "
                             "last",
                             "HAKMEM_PURGE_THREAD=auto, or call hak_collect() or malloc_trim(0) before it idles"))
    return found


def check_preload(environment: dict[str, str], exists: Callable[[str], bool]) -> list[Finding]:
    """Finds missing files in LD_PRELOAD. The dynamic linker only mentions them on standard error."""
    return [Finding("problem", "LD_PRELOAD", f"{entry} is not there", "give the path where libhakmem.so lies, absolute")
            for entry in preload_entries(environment) if "/" in entry and not exists(entry)]


def check_static_tls(objects: list[LoadedObject], started: list[LoadedObject],
                     environment: dict[str, str]) -> list[Finding]:
    """Checks static TLS: libraries that dlopen loaded share the space that glibc reserves."""
    match = re.search(r"glibc\.rtld\.optional_static_tls=(\d+)", environment.get("GLIBC_TUNABLES", ""))
    surplus = int(match[1]) if match else STATIC_TLS_SURPLUS
    late = [each for each in objects if each.elf.static_tls and each.elf.tls_bytes and each.position is not None
            and each not in started]
    taken = sum(each.elf.tls_bytes for each in late)
    if not late:
        return [Finding("ok", "static TLS", f"no library that came by dlopen takes any of the {surplus} bytes set "
                        f"apart for that")]
    names = ", ".join(each.name for each in late)
    seen = f"{names}, loaded by dlopen, take {taken} of the {surplus} bytes set apart for that"
    return [Finding("warning" if taken > NEAR * surplus else "note", "static TLS", seen,
                    f"if a dlopen fails with 'cannot allocate memory in static TLS block': preload that library, or "
                    f"GLIBC_TUNABLES=glibc.rtld.optional_static_tls={4 * max(surplus, taken)}")]
