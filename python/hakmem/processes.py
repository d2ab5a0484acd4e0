"""Finds processes by the words that people type for a PID.

A word of digits is a PID. Any other word is a name, which must match whole, as with pidof: the process's name, or the
file name of its program or of its first word. A script is also found by its own name. If none of these matches, the
word is searched in the command lines, as with `pgrep -f`. Only /proc is read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hakmem.clean import clean
from hakmem.foreign import TooLarge, read_proc
from hakmem.parameters import Parameter

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Kernel threads have this flag in /proc/PID/stat.
KERNEL_THREAD = 0x200000
COMM_MOST = 15  # bytes that the kernel keeps of a name
PART_LEAST = 3  # a shorter word is not searched in command lines: it is in most of them
STAT_MOST, LINE_MOST = 1 << 16, 8 << 20  # limits of bytes read of a process
LOOK_SECONDS, SPACE_MOST = 10, 8 << 30  # limits of finding out whether one process runs on HAKMEM
SHOWN = 60  # characters of a command line in a list
LISTED = 20  # processes in a list


@dataclass(frozen=True)
class Process:
    """What everybody may read of a process."""

    pid: int
    parent: int
    name: str  # as the kernel has it, 15 bytes at most
    words: tuple[str, ...]  # its command line; empty where it has none
    executable: str  # the file name of its program; "" where it may not be read

    @property
    def command(self) -> str:
        """The command line as one line for people."""
        return clean(" ".join(self.words) or self.name).strip()

    def names(self) -> set[str]:
        """Returns the names by which the process is known."""
        found = {self.name, self.executable}
        if self.words:
            # nginx and others write a sentence into their command line. Its first word is their name.
            found |= {os.path.basename(self.words[0]), os.path.basename(self.words[0].split(" ")[0].rstrip(":"))}
            # The program of a script is its interpreter. The kernel puts the script's path after it.
            if len(self.words) > 1 and not self.words[1].startswith("-"):
                found.add(os.path.basename(self.words[1]))
        return found - {""}


def read_one(pid: int) -> Process | None:
    """Returns the Process of a PID; None if it has ended, waits for its parent, or is the kernel's."""
    folder = Path("/proc", str(pid))
    try:
        head, _, tail = read_proc(folder / "stat", STAT_MOST).rpartition(b")")
        fields = tail.split()
        if len(fields) < 7 or fields[0] in b"ZX" or int(fields[6]) & KERNEL_THREAD:
            return None
        line = read_proc(folder / "cmdline", LINE_MOST)
    except TooLarge:
        line = b""  # longer than exec allows, so the process has overwritten it
    except (OSError, ValueError):
        return None
    try:
        executable = os.path.basename(os.readlink(folder / "exe").removesuffix(" (deleted)"))
    except OSError:
        executable = ""
    words = tuple(os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0")) if line.strip(b"\0") else ()
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(pid, int(fields[1]), name, words, executable)


def all_processes() -> list[Process]:
    """Returns every Process in /proc, by PID."""
    pids = sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [process for process in map(read_one, pids) if process]


def family(processes: list[Process]) -> set[int]:
    """Returns the PIDs of this process and its ancestors, whose command lines contain the searched name."""
    parents, found, pid = {process.pid: process.parent for process in processes}, set(), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def bearers(name: str, processes: list[Process]) -> list[Process]:
    """Returns the processes with exactly this name. The kernel keeps only the first bytes of a longer name."""
    kept = os.fsencode(name)[:COMM_MOST].decode(errors="replace")
    return [process for process in processes if process.pid != os.getpid() and (
        name in process.names() or kept != name and process.name == kept and name in process.command)]


def matches(name: str, processes: list[Process]) -> list[Process]:
    """Returns the processes that a name means: those that have it, else those with it in their command line."""
    own = family(processes)
    return bearers(name, processes) or [
        process for process in processes
        if len(name) >= PART_LEAST and process.pid not in own and name in " ".join(process.words)]


class NoSuchName(click.ClickException):
    """No process has the name."""


class Several(click.UsageError):
    """The name means several processes, and one is wanted."""


def listing(processes: list[Process]) -> str:
    """Returns the processes, one on each line, as many as a screen holds."""
    lines = [f"  {process.pid:>7}  {process.command[:SHOWN]}" for process in processes[:LISTED]]
    if len(processes) > LISTED:
        lines.append(f"  and {len(processes) - LISTED} more")
    return "\n".join(lines)


def on_hakmem(processes: list[Process]) -> list[Process]:
    """Returns those of the processes that visibly run on HAKMEM."""
    from hakmem.apart import in_steps
    from hakmem.live.descriptor import runs_hakmem

    known: dict[tuple[str, int, str, int], bool] = {}
    return [
        process for process, runs in in_steps(lambda process: runs_hakmem(process.pid, known), processes, LOOK_SECONDS,
                                              SPACE_MOST) if runs is True
    ]


def find_named(name: str, served: bool) -> list[Process]:
    """Returns the processes that a name means, at least one. served: of several processes, only those on HAKMEM
    count, if there are any."""
    found = matches(name, all_processes())
    if not found:
        raise NoSuchName(f"no process is named '{name}', and no command line has it in it")
    return (on_hakmem(found) if served and len(found) > 1 else []) or found


def pid_of(name: str, served: bool = False) -> int:
    """Returns the PID of the one process that a name means."""
    found = find_named(name, served)
    if len(found) > 1:
        raise Several(f"'{name}' means {len(found)} processes; give the PID of one:\n{listing(found)}")
    if name not in found[0].names():
        click.echo(f"hakmem: '{name}' is process {found[0].pid}: {found[0].command[:SHOWN]}", err=True)
    return found[0].pid


class ProcessParameter(Parameter[Any]):
    """A PID, or the name of a process, which becomes its PID. served: the command is for processes on HAKMEM."""

    name = "process"

    def __init__(self, served: bool = True) -> None:
        self.served = served

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses the argument."""
        if isinstance(value, int):
            return value
        number = self.number(value, param, ctx)
        return number if number is not None else pid_of(value, self.served)

    def number(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Returns the PID in a word of digits; None for another word."""
        text = value.strip()
        if not text:
            self.fail("a PID or the name of a process is wanted", param, ctx)
        if text.removeprefix("-").isdigit() and text.isascii():
            if int(text) < 1:
                self.fail(f"{text} is not in the range x>=1.", param, ctx)
            return int(text)
        return None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offers PIDs for digits, else names; of processes on HAKMEM, if the command is for those."""
        from click.shell_completion import CompletionItem

        processes = all_processes()
        own = family(processes)
        processes = [process for process in processes if process.pid not in own]
        if self.served:
            processes = on_hakmem(processes) or processes
        named: dict[str, list[Process]] = {}
        for process in processes:
            named.setdefault(process.name, []).append(process)
        items = [CompletionItem(str(process.pid), help=process.command[:SHOWN]) for process in processes
                 if str(process.pid).startswith(incomplete)] if not incomplete or incomplete.isdigit() else []
        return items + [CompletionItem(name, help=", ".join(str(process.pid) for process in found[:5]))
                        for name, found in named.items() if name.startswith(incomplete) and not set(name) & set(" ,:")
                        and clean(name) == name]


class ProcessesParameter(ProcessParameter):
    """The same for several processes: a name means all that have it. Gives a list of PIDs."""

    def convert(self, value: str | int | list[int], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses the argument."""
        if not isinstance(value, str):
            return value
        number = self.number(value, param, ctx)
        return [number] if number is not None else [process.pid for process in find_named(value, self.served)]
