"""The command `hakmem doctor`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path

import click

from hakmem import paths
from hakmem.clean import clean
from hakmem.doctor import DoctorError
from hakmem.doctor.elf import read_elf
from hakmem.doctor.findings import Finding, as_json, exit_status
from hakmem.doctor.linkmap import (
    LoadedObject,
    bindings,
    loaded_objects,
    place,
    place_program,
    preload_entries,
    reachable,
    read_link_map,
)
from hakmem.doctor.machine_checks import check_machine
from hakmem.doctor.process_checks import (
    check_cgroup,
    check_limits,
    check_mappings,
    check_options,
    check_preload,
    check_process_huge_pages,
    check_static_tls,
    check_swapped,
)
from hakmem.doctor.serving_checks import (
    check_active,
    check_bindings,
    check_environment,
    check_mixed,
    check_privilege,
    check_runtime,
    check_static,
    check_word_size,
    first_definer,
    is_hakmem,
)
from hakmem.doctor.system import TEXT_MOST, Process, read_process
from hakmem.doctor.values import check_values
from hakmem.foreign import Mapping, open_regular
from hakmem.library import known_options
from hakmem.live.memory import LiveError, ProcessMemory, permission_error, sense
from hakmem.processes import ProcessParameter
from hakmem.units import bytes_text

ROOT = Path("/")
STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}
TRIAL_SECONDS = 20
# Limit of the bytes of a file that is searched for options.
LIBRARY_MOST = 64 << 20


def check_process(memory: ProcessMemory) -> list[Finding]:
    """Returns every finding on a process."""
    pid = memory.pid
    process = read_process(pid)
    if process.mappings is None:
        raise permission_error(pid)
    environment = process.environment or {}
    objects, unread = loaded_objects(memory, process.mappings)
    found = [Finding("note", "files", f"{path} could not be read, and is left out", "run this as root, or where that "
                     "file is")
             for path in unread]
    found += check_objects(process, memory, objects, environment)
    library = next((each for each in objects if is_hakmem(each)), None)
    known = None
    if library is not None:
        stream = memory.open_mapping(library.mappings[0])
        if stream is not None:
            with stream:
                known = known_options(stream.pread(LIBRARY_MOST, 0))
    if not any(finding.subject == "options" for finding in found):
        found += check_options(environment, known, judge_values)
    if not any(finding.subject == "purging" for finding in found):
        found += check_departure(memory)
    found += check_preload(environment, lambda entry: os.path.exists(process.folder / "root" / entry.lstrip("/")))
    found += check_process_huge_pages(process.status, environment)
    found += check_mappings(ROOT, len(process.mappings))
    found += check_window(process.mappings, environment)
    found += check_limits(process.limits, process.status_bytes)
    found += check_cgroup(ROOT, pid, environment)
    found += check_swapped(process.status_bytes)
    return found


def check_departure(memory: ProcessMemory) -> list[Finding]:
    """Says when what is free leaves a process on HAKMEM; nothing of other processes."""
    from hakmem.live.departure import BY_CALLS, departure_of

    try:
        when = departure_of(memory)
    except LiveError:
        return []
    more = f"hakmem look {memory.pid} --explain says how much waits" if when.who == BY_CALLS else ""
    return [Finding("note" if when.who == BY_CALLS else "ok", "purging", when.text(), more)]


def judge_values(options: dict[str, str]) -> list[Finding]:
    """Returns the findings on options' values, by the library of this build. The process's own library is not run
    here, because it may be anybody's."""
    library = paths.hakmem_library()
    if not library.is_file():
        return []
    known = known_options(library.read_bytes())
    return check_values({name: value for name, value in options.items() if name in known}, library)


def check_objects(process: Process, memory: ProcessMemory, objects: list[LoadedObject],
                  environment: dict[str, str]) -> list[Finding]:
    """Returns the findings that depend on what is loaded."""
    program_path = (process.executable or "").removesuffix(" (deleted)")
    program = next((each for each in objects if each.path == program_path), None)
    early = [*check_word_size(program), *check_static(program)]
    if early:
        return [*early, *check_privilege(process)]
    chain, more = read_link_map(memory, process.auxiliary or {})
    place(objects, chain)
    place_program(objects, process, chain)
    started = reachable(objects, program, preload_entries(environment))
    system_wide = read_regular(process.folder / "root/etc/ld.so.preload")
    bound = check_bindings(bindings(memory, objects), objects) if chain else []
    first = first_definer(objects)
    unused = first is not None and is_hakmem(first) and bool(bound) and all(each.level == "ok" for each in bound)
    found = [
        *check_active(program, objects, started, environment), *check_privilege(process),
        *check_mixed(objects, program, unused), *check_runtime(objects, environment), *bound
    ]
    if not chain:
        found.append(Finding("note", "bindings", "the dynamic linker's list of libraries cannot be found",
                             "start the program by its own name, not through ld.so"))
    if more:
        found.append(Finding("note", "bindings", "there are namespaces made by dlmopen; their libraries are not in "
                             "this order",
                             "libraries in them have a C library of their own, and its malloc"))
    found += check_environment(started, environment, system_wide)
    return [*found, *check_static_tls(objects, started, environment)]


def read_regular(path: Path) -> str:
    """Returns the text of a regular file inside the process's root folder; "" if there is none."""
    try:
        file = open_regular(path)
    except OSError:
        return ""
    if file is None:
        return ""
    with file:
        return file.pread(TEXT_MOST, 0).decode(errors="replace")


def check_window(mappings: list[Mapping], environment: dict[str, str]) -> list[Finding]:
    """Returns a finding on the size of the mapped window, which the kernel shows by name if it supports names."""
    size = sum(mapping.size for mapping in mappings if mapping.path == "[anon:hakmem]")
    if not size:
        return []
    by_option = "HAKMEM_ARENA_SIZE" in environment
    why = ", as far as HAKMEM_ARENA_SIZE lets it grow" if by_option else ""
    return [Finding("ok", "window", f"{bytes_text(size)} are mapped for small blocks{why}")]


def check_here() -> list[Finding]:
    """Returns every finding on the machine, the environment and the library, for programs to be started."""
    environment = dict(os.environ)
    library = paths.hakmem_library()
    found = check_library(library)
    known = known_options(library.read_bytes()) if library.is_file() else None
    found += check_options(environment, known, judge_values)
    found += check_preload(environment, os.path.exists)
    limits = {short: None if soft == resource.RLIM_INFINITY else soft for short, soft in (
        (short, resource.getrlimit(which)[0]) for short, which in (
            ("as", resource.RLIMIT_AS), ("data", resource.RLIMIT_DATA), ("memlock", resource.RLIMIT_MEMLOCK)))}
    found += check_limits(limits, lambda _: None)
    found += check_cgroup(ROOT, "self", environment)
    return found


def check_library(library: Path) -> list[Finding]:
    """Checks that the library exists and replaces malloc in a program that is run to test this."""
    if not library.is_file():
        return [Finding("problem", "library", f"{library} is not there", paths.how_to_build())]
    with open(library, "rb") as stream:
        try:
            elf = read_elf(stream)
        except ValueError as error:
            return [Finding("problem", "library", f"{library}: {error}", paths.how_to_build())]
    if not elf.defines_malloc:
        return [Finding("problem", "library", f"{library} defines no malloc", "it is a build for a sanitizer; "
                        "./hakmem build builds the one that replaces malloc")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    try:
        run = subprocess.run(["/bin/sh", "-c", ":"], env={**env, "LD_PRELOAD": str(library), "HAKMEM_VERBOSE": "1"},
                             check=False,
                             capture_output=True, text=True, timeout=TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Finding("problem", "library", f"/bin/sh did not run with {library}: {error}",
                        paths.how_to_build())]
    lines = run.stderr.strip().splitlines()
    if run.returncode != 0 or not any("version" in line for line in lines):
        seen = lines[0] if lines else f"it ended with {run.returncode} and said nothing"
        return [Finding("problem", "library", f"/bin/sh with LD_PRELOAD={library}: {seen}",
                        "is /bin/sh dynamic, and the path without blanks and colons?")]
    return [Finding("ok", "library", f"{library} serves a program that it is preloaded into")]


def print_findings(found: Iterable[Finding], heading: str) -> None:
    """Prints the findings."""
    from hakmem.screen import Table, Text, make_console

    console = make_console()
    console.print(Text(heading, style="bold"))
    if console.is_terminal:
        table = Table(show_header=False)
        for name in ("level", "subject", "text"):
            table.add_column(name, no_wrap=name != "text")
        for finding in found:
            text = Text(finding.seen)
            text.append(f" -> {finding.advice}" if finding.advice else "", style="italic")
            table.add_row(Text(finding.level, style=STYLES[finding.level]), finding.subject, text)
        console.print(table)
    else:
        for finding in found:
            advice = f" -> {finding.advice}" if finding.advice else ""
            click.echo(clean(f"{finding.level:8} {finding.subject}: {finding.seen}{advice}"))


@click.command()
@click.option("--json", "as_json_text", is_flag=True, help="Print the findings as JSON.")
@click.argument("pid", type=ProcessParameter(served=False), required=False, metavar="[PID|NAME]")
@click.pass_context
def doctor(ctx: click.Context, as_json_text: bool, pid: int | None) -> None:
    """Check whether HAKMEM serves process PID, or without PID, whether it can serve programs on this machine.

    Each finding is ok, a note, a warning or a problem, and says what to do. The command ends with 1 if there is a
    warning or a problem, or if it cannot look; otherwise with 0."""
    try:
        if pid:
            memory = ProcessMemory(pid)
            with sense(memory):
                own = check_process(memory)
        else:
            own = check_here()
    except LiveError as error:
        raise DoctorError(str(error)) from error
    # What is well with the machine need not be said again after what the process has of it: mappings, huge pages.
    told = {finding.subject for finding in own}
    found = [*own, *(each for each in check_machine(ROOT) if each.level != "ok" or each.subject not in told)]
    if as_json_text:
        click.echo(json.dumps(as_json(found, pid=pid), indent=1))
    else:
        print_findings(found, f"process {pid}" if pid else "this machine")
    ctx.exit(exit_status(found))
