"""Findings on what serves a process's malloc: HAKMEM, another allocator, or several of them."""

from __future__ import annotations

import os
import re

from hakmem.doctor.findings import Finding
from hakmem.doctor.linkmap import Binding, LoadedObject, preload_entries
from hakmem.doctor.system import AT_SECURE, Process
from hakmem.paths import COMMAND

RUN = f"run it with {COMMAND} run -- PROGRAM, or LD_PRELOAD=/path/to/libhakmem.so"
LINK = "link libhakmem-override.a into it"
SHOWN_MOST = 5

# Languages whose objects malloc never sees: (name of the program or library, the objects, what holds them, what to do).
RUNTIMES = ((re.compile(r"(lib)?python3"), "Python's objects up to 512 bytes", "its own arenas (pymalloc)",
             "PYTHONMALLOC=malloc in its environment gives them to HAKMEM"),
            (re.compile(r"libjvm\.so"), "Java's objects", "the virtual machine's heap",
             "-Xmx bounds that"), (re.compile(r"(node|nodejs|libnode\.so.*)$"), "JavaScript's objects", "V8's heap",
                                   "--max-old-space-size bounds that"),
            )


def is_hakmem(each: LoadedObject) -> bool:
    """Returns whether the object holds HAKMEM."""
    return "hakmem" in each.elf.allocators


def other_allocators(each: LoadedObject) -> list[str]:
    """Returns which other allocators of MARKERS the object holds."""
    return sorted(each.elf.allocators - {"hakmem"})


def names(objects: list[LoadedObject]) -> str:
    """Returns the objects' names as a text."""
    shown = ", ".join(each.name for each in objects[:SHOWN_MOST])
    return shown + (f" and {len(objects) - SHOWN_MOST} more" if len(objects) > SHOWN_MOST else "")


def check_privilege(process: Process) -> list[Finding]:
    """Checks whether the program has other rights than its caller. If so, the dynamic linker and HAKMEM ignore what the
    environment says."""
    secure = (process.auxiliary or {}).get(AT_SECURE)
    uids = process.status.get("Uid", "").split()
    if secure is None and len(set(uids[:2])) == 2:
        secure = 1
    if not secure:
        return []
    return [Finding("warning", "privilege", "the program was started with other rights than its caller's (set-user-id "
                    "or file "
                    "capabilities): LD_PRELOAD is ignored unless a path is trusted, and so are HAKMEM's options",
                    f"{LINK}, or name a copy in /etc/ld.so.preload; the defaults are in force then")]


def check_static(program: LoadedObject | None) -> list[Finding]:
    """Returns findings on a static program, in which the dynamic linker has no part; [] for other programs."""
    if program is None or program.elf.interpreter is not None or program.is_loader:
        return []
    if is_hakmem(program):
        return [Finding("ok", "HAKMEM", f"linked into {program.name}, which is static")]
    others = other_allocators(program)
    inside = f", with {', '.join(others)} in it" if others else ""
    return [Finding("problem", "HAKMEM", f"{program.name} is linked statically{inside}: no library can be preloaded "
                    "into it", f"{LINK}, or link it dynamically")]


def check_word_size(program: LoadedObject | None) -> list[Finding]:
    """Checks that the program has 64 bits."""
    if program is None or program.elf.bits == 64:
        return []
    return [Finding("problem", "HAKMEM", f"{program.name} is a {program.elf.bits}-bit program; HAKMEM is for 64 bits",
                    "build the program for 64 bits")]


def check_active(program: LoadedObject | None, objects: list[LoadedObject], started: list[LoadedObject],
                 environment: dict[str, str]) -> list[Finding]:
    """Checks whether the program's malloc is bound to HAKMEM, and how HAKMEM was loaded."""
    copies = [each for each in objects if is_hakmem(each)]
    if not copies:
        asked = [entry for entry in preload_entries(environment) if "hakmem" in os.path.basename(entry)]
        if asked:
            return [Finding("problem", "HAKMEM", f"LD_PRELOAD names {asked[0]}, and it is not loaded",
                            "look at what the program wrote on "
                            "standard error at its start: the dynamic linker says there why not")]
        return [Finding("problem", "HAKMEM", f"not in this process; {server_of(objects)} serves it", RUN)]
    found = []
    if len(copies) > 1:
        found.append(Finding("warning", "copies", f"{len(copies)} copies of HAKMEM are loaded "
                             f"({', '.join(each.path for each in copies)}): none knows the blocks of another",
                             "keep one: preload it or link it, not both"))
    with_malloc = [each for each in copies if each.elf.defines_malloc]
    if not with_malloc:
        found.append(Finding("note", "HAKMEM", f"its hak_* functions are in {names(copies)}; malloc is "
                             f"{server_of(objects)}'s",
                             "that is as it should be for a program that calls hak_malloc itself; " + RUN +
                             " if malloc was meant"))
        return found
    first = first_definer(objects)
    if first is not None and not is_hakmem(first):
        late = [each for each in with_malloc if each not in started]
        if late:
            found.append(Finding("problem", "HAKMEM", f"{late[0].name} came by dlopen, when malloc was bound to "
                                 f"{first.name} already",
                                 RUN))
        else:
            found.append(Finding("problem", "HAKMEM", f"loaded, and {first.name} stands before it: malloc is "
                                 f"{first.name}'s",
                                 "name libhakmem.so first in LD_PRELOAD, or before that library when linking"))
        return found
    server = first or with_malloc[0]
    found.append(Finding("ok", "HAKMEM", f"active: malloc is bound to {server.path}, "
                         f"{how_it_came(server, program, environment)}"))
    if server.deleted:
        found.append(Finding("note", "HAKMEM", f"{server.path} was replaced or removed since the program started",
                             "restart the program to have the new one"))
    return found


def check_environment(started: list[LoadedObject], environment: dict[str, str], system_wide: str) -> list[Finding]:
    """Notes if a program has written over its environment, as programs that set their own title do. Its options are
    then unknown. system_wide: the content of /etc/ld.so.preload."""
    needed = {name for each in started for name in each.elf.needed}
    unexplained = [each for each in started if is_hakmem(each) and each.position and each.name not in system_wide
                   and not needed & {each.name, each.elf.soname}]
    if "LD_PRELOAD" in environment or not unexplained:
        return []
    return [Finding("note", "options", "the program has written over its environment: its options cannot be told",
                    "look at how it is started; HAKMEM_VERBOSE=1 prints what is in force")]


def how_it_came(server: LoadedObject, program: LoadedObject | None, environment: dict[str, str]) -> str:
    """Returns in words how HAKMEM was loaded."""
    if server is program:
        return "linked into the program"
    for entry in preload_entries(environment):
        if os.path.basename(entry) == server.name or os.path.realpath(entry) == os.path.realpath(server.path):
            return "preloaded"
    if program is not None and any(name in (server.elf.soname, server.name) for name in program.elf.needed):
        return "linked to the program"
    return "preloaded, or needed by a library"


def first_definer(objects: list[LoadedObject]) -> LoadedObject | None:
    """Returns the first object in the dynamic linker's order that defines malloc; None if the order is unknown."""
    definers = [(each.position, each) for each in objects
                if each.position is not None and each.elf.defines_malloc and not each.is_loader]
    return min(definers, key=lambda pair: pair[0])[1] if definers else None


def server_of(objects: list[LoadedObject]) -> str:
    """Returns the name of the allocator to which malloc is bound."""
    first = first_definer(objects) or next((each for each in objects if each.is_libc), None)
    if first is None:
        return "the program's own malloc"
    return ", ".join(other_allocators(first)) or ("the C library" if first.is_libc else first.name)


def check_mixed(objects: list[LoadedObject], program: LoadedObject | None, unused: bool) -> list[Finding]:
    """Finds other allocators in the process. unused: whether all calls lead to HAKMEM, so that another malloc beside
    it serves nothing."""
    found = []
    for each in objects:
        if is_hakmem(each) or each.is_libc or each.is_loader:
            continue
        kinds = other_allocators(each)
        if kinds and kinds[0].endswith("Sanitizer"):
            found.append(Finding("problem", "mixed allocators", f"{each.name} is {kinds[0]}, which must be malloc "
                                 f"itself to find errors",
                                 "run sanitized programs without HAKMEM, or link hakmem::static and call hak_malloc"))
        elif each.elf.defines_malloc and unused:
            found.append(Finding("ok", "mixed allocators", f"{each.name} is loaded"
                                 + (f" ({', '.join(kinds)})" if kinds else "") + ", and no call of malloc leads to it"))
        elif each.elf.defines_malloc:
            found.append(Finding("warning", "mixed allocators", f"{each.name} brings a malloc of its own"
                                 + (f" ({', '.join(kinds)})" if kinds else ""),
                                 "leave it out of LD_PRELOAD and of the link, so that one allocator has all memory"
                                 if each is not program else "build the program without it (for jemalloc often "
                                 "--disable-jemalloc)"))
        elif kinds:
            found.append(Finding("note", "mixed allocators", f"{each.name} has {', '.join(kinds)} inside, under names "
                                 "of its own",
                                 "its memory is not in HAKMEM's figures; nothing to do unless it is much"))
    return found or [Finding("ok", "mixed allocators", "no other allocator is loaded")]


def check_runtime(objects: list[LoadedObject], environment: dict[str, str]) -> list[Finding]:
    """Finds runtimes with arenas of their own. These often hold most of the memory, and no figure of HAKMEM's
    has them."""
    found = []
    for pattern, what, where, advice in RUNTIMES:
        of_it = [each for each in objects if pattern.match(each.name)]
        if of_it and not (what.startswith("Python") and environment.get("PYTHONMALLOC") in ("malloc", "malloc_debug")):
            found.append(Finding("note", "own arenas", f"{what} are in {where}, mapped by {of_it[0].name} for itself",
                                 f"they are 'other anonymous memory' of hakmem look PID --explain; {advice}"))
    return found


def check_bindings(found_bindings: list[Binding], objects: list[LoadedObject]) -> list[Finding]:
    """Checks that every object's calls lead to the same allocator. RTLD_DEEPBIND and -Bsymbolic can divert them."""
    first = first_definer(objects)
    if first is None:
        return []
    astray: dict[tuple[str, str], tuple[Binding, LoadedObject, list[str]]] = {}
    bound = 0
    for binding in found_bindings:
        if binding.target is None:
            continue
        bound += 1
        if binding.target is not first and binding.target.elf.defines_malloc:
            astray.setdefault((binding.user.path, binding.target.path),
                              (binding, binding.target, []))[2].append(binding.symbol)
    # The linker has bound the calls of these objects to themselves, without a slot to examine.
    inward = [each for each in objects if each.elf.symbolic and each.elf.defines_malloc and each is not first
              and not each.is_libc and not is_hakmem(each) and (each.path, each.path) not in astray]
    if not bound and not inward:
        return [Finding("note", "bindings", "none of the slots for malloc and free is bound yet", "ask again when the "
                        "program has run")]
    if not astray and not inward:
        return [Finding("ok", "bindings", f"all {bound} slots for malloc, free and their family lead to {first.name}")]
    found = []
    for binding, target, symbols in astray.values():
        user = binding.user
        if user is target:
            why = f"it was {'linked with -Bsymbolic, or ' if user.elf.symbolic else ''}loaded with RTLD_DEEPBIND"
        else:
            why = "it was loaded with RTLD_DEEPBIND or into a namespace of its own (dlmopen)"
        own = ", ".join(sorted(set(symbols)))
        found.append(Finding("problem", "bindings", f"{user.name} has its {own} from {target.name}, the others from "
                             f"{first.name}: {why}", "a block that crosses between them is freed by the wrong one: "
                             "leave RTLD_DEEPBIND out of that dlopen, as HAKMEM_DEEPBIND=0 does, or keep each block "
                             "on its side"))
    found += [Finding("problem", "bindings", f"{each.name} was linked with -Bsymbolic and calls its own malloc, the "
                      f"others call that of {first.name}", "link it without -Bsymbolic, or without its malloc") for
              each in inward]
    return found
