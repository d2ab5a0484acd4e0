"""Runs a program as a debugger does and holds it at its end, while its memory is still there.

The kernel stops each thread of a traced process at its end (PTRACE_O_TRACEEXIT), whether main returns, _exit is called
or a signal kills it. Then no code of the program runs, and its memory, registers and mappings are unchanged. A
library's exit handler would miss _exit and signals, would run beside other threads, and would see only the registers of
its own thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from hakmem.limits import in_own_terms
from hakmem.live.memory import ENDED, IoVec, thread_state
from hakmem.phrases import signal_name

if TYPE_CHECKING:
    from types import FrameType

WALL = 0x40000000
CONT, GETEVENTMSG, GETREGSET, SEIZE, LISTEN = 7, 0x4201, 0x4204, 0x4206, 0x4208
TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, TRACEEXIT = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 6
EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_EXIT, EVENT_STOP = 1, 2, 3, 4, 6, 128
NT_PRSTATUS = 1
PR_SET_PTRACER, ANY_TRACER = 0x59616D61, (1 << 64) - 1
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# {machine: (places in the registers of the system call's number and of the stack pointer, number of exit())}.
REGISTERS = {"x86_64": (15, 19, 60), "aarch64": (8, 31, 93), "riscv64": (17, 2, 93)}
# A thread that sleeps in the kernel may end late. After this time the process is examined without that thread.
LATE_SECONDS = 5
POLL_SECONDS = 0.002
NOT_EXECUTABLE = 126
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


# {thread: (words, stack pointer)}
Registers = dict[int, tuple[list[int], int]]


class Forbidden(Exception):
    """This process may not trace its own child. The text says why."""


@dataclass
class Group:
    """A traced process and what is known of its threads."""

    pid: int
    is_program: bool = True  # False until an adopted process, or a child of vfork(), has called exec
    threads: set[int] = field(default_factory=set)  # those that are watched and not known to be gone
    held: Registers = field(default_factory=dict)  # threads that are stopped at their end, with their registers
    since: float = 0.0  # when the first thread was held
    status: int = 0  # with which the process ends, as waitpid has it
    told: bool = False  # at_end() has been called, or was not wanted


@dataclass(frozen=True)
class Ending:
    """A process at its end, with all threads stopped. thread: one through which its memory is read."""

    pid: int
    thread: int
    status: int
    registers: Registers


def ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> int:
    """Calls ptrace; raises OSError if it fails."""
    result: int = LIBC.ptrace(request, thread, address, data)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def registers_of(thread: int) -> list[int]:
    """Returns the thread's general registers as words."""
    words = (ctypes.c_uint64 * 64)()
    vector = IoVec(ctypes.addressof(words), ctypes.sizeof(words))
    ptrace(GETREGSET, thread, NT_PRSTATUS, ctypes.addressof(vector))
    return list(words)[:vector.size // 8]


def event_message(thread: int) -> int:
    """Returns the message of a thread's ptrace event."""
    value = ctypes.c_ulong()
    ptrace(GETEVENTMSG, thread, 0, ctypes.addressof(value))
    return value.value


def process_of(thread: int) -> int | None:
    """Returns the process to which the thread belongs; None if it is gone."""
    try:
        for line in Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def lives(pid: int, thread: int) -> bool:
    """Returns whether the thread has not ended."""
    return thread_state(pid, thread) not in ENDED


def threads_of(pid: int) -> set[int]:
    """Returns the threads of the process, ended or not."""
    try:
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    except OSError:
        return set()


class Supervisor:
    """Runs a program and calls at_end(Ending) for it, and for its children if wanted."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], at_end: Callable[[Ending], object],
                 children: bool = False) -> None:
        self.command, self.environment, self.at_end, self.children = command, environment, at_end, children
        self.groups: dict[int, Group] = {}
        self.group_of: dict[int, int] = {}
        self.root = 0
        self.root_status: int | None = None
        self.layout = REGISTERS[os.uname().machine]

    # ---- Start and end ----

    def run(self) -> int:
        """Returns the program's status as waitpid gives it; raises Forbidden if the program may not be traced."""
        self.start()
        before = {number: signal.signal(number, self.forward) for number in FORWARDED}
        # A terminal sends these to the program too, so they are ignored here.
        before.update({number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)})
        try:
            while self.root_status is None or (self.children and self.group_of):
                self.step()
        except ChildProcessError:
            pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.root_status is None:
            raise Forbidden("the program's end could not be seen")
        return self.root_status

    def beside(self) -> bool:
        """Starts a process that watches this one, which is about to become the program. This process keeps its PID,
        its parent, its terminal and its exit status. Returns False if watching is forbidden."""
        LIBC.prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY_TRACER), 0, 0, 0)
        reader, writer = os.pipe()
        target = os.getpid()
        between = os.fork()
        if between == 0:
            # The watcher is no child of the program, and signals from its terminal do not reach it.
            os.setsid()
            if os.fork() == 0:
                self.watch(target, writer)
            os._exit(0)
        os.close(writer)
        os.waitpid(between, 0)
        answer = os.read(reader, 1)
        os.close(reader)
        LIBC.prctl(PR_SET_PTRACER, 0, 0, 0, 0)
        return answer == b"y"

    def watch(self, target: int, writer: int) -> None:
        """Runs in the watching process until the program has ended."""
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for file in (0, 1):
                os.dup2(nowhere, file)
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) != writer:
                    try:
                        os.close(int(name))
                    except OSError:
                        pass  # the descriptor of the listing itself
            ptrace(SEIZE, target, 0, TRACEEXIT | TRACECLONE | TRACEEXEC)
            self.adopt(target)
            os.write(writer, b"y")
            os.close(writer)
            while self.root_status is None:
                self.step()
        except (OSError, ChildProcessError):
            pass  # the program goes on without us
        finally:
            os._exit(0)

    def adopt(self, pid: int) -> None:
        """Traces a process, which counts as the program only after its exec."""
        self.root = pid
        self.groups[pid] = Group(pid, is_program=False, threads={pid})
        self.group_of[pid] = pid

    def start(self) -> None:
        """Starts the program, traced."""
        go_reader, go_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_writer)
            self.become(go_reader)
        os.close(go_reader)
        options = TRACEEXIT | TRACECLONE | TRACEEXEC | (TRACEFORK | TRACEVFORK if self.children else 0)
        try:
            ptrace(SEIZE, pid, 0, options)
        except OSError as error:
            os.close(go_writer)
            os.waitpid(pid, 0)
            raise Forbidden(why_forbidden(error)) from error
        self.adopt(pid)
        os.write(go_writer, b"g")
        os.close(go_writer)

    def become(self, reader: int) -> NoReturn:
        """In the child: becomes the program, once it is traced."""
        try:
            if os.read(reader, 1) != b"g":
                os._exit(NOT_EXECUTABLE)
            os.close(reader)
            in_own_terms()
            os.execvpe(self.command[0], self.command, self.environment)
        except OSError as error:
            os.write(2, f"hakmem: cannot run {self.command[0]}: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(NOT_EXECUTABLE)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Sends a signal on to the program."""
        try:
            os.kill(self.root, number)
        except ProcessLookupError:
            pass

    # ---- What the kernel tells ----

    def step(self) -> None:
        """Waits for one event and handles it."""
        ending = [group for group in self.groups.values() if group.held and not group.told]
        thread, status = os.waitpid(-1, WALL | (os.WNOHANG if ending else 0))
        if thread == 0:
            for group in ending:
                self.tell_if_all(group)
            if not all(group.told for group in ending):
                time.sleep(POLL_SECONDS)
            return
        if os.WIFSTOPPED(status):
            try:
                self.stopped(thread, os.WSTOPSIG(status), status >> 16)
            except OSError as error:
                if error.errno != errno.ESRCH:  # it was killed meanwhile
                    raise
        else:
            self.gone(thread, status)

    def stopped(self, thread: int, number: int, event: int) -> None:
        """Handles a stop of a thread."""
        if thread not in self.group_of:
            # The event of its birth comes later, or never (a clone that is a process of its own).
            self.join(thread)
        if event == EVENT_EXIT:
            self.at_exit(thread)
        elif event == EVENT_STOP and number in STOPS:
            ptrace(LISTEN, thread)
        elif event in (EVENT_FORK, EVENT_VFORK, EVENT_CLONE):
            self.born(event_message(thread), event == EVENT_VFORK)
            ptrace(CONT, thread)
        elif event == EVENT_EXEC:
            self.replaced(thread)
            ptrace(CONT, thread)
        else:
            ptrace(CONT, thread, 0, 0 if event else number)

    def join(self, thread: int) -> None:
        """Adds a thread to its process."""
        pid = process_of(thread)
        if pid is None:
            return
        if pid not in self.groups:
            self.groups[pid] = Group(pid)
        self.group_of[thread] = pid
        self.groups[pid].threads.add(thread)

    def born(self, thread: int, by_vfork: bool) -> None:
        """Handles a new thread or process."""
        self.join(thread)
        pid = self.group_of.get(thread)
        if pid in self.groups and by_vfork:
            self.groups[pid].is_program = False

    def replaced(self, thread: int) -> None:
        """Handles an exec: the process now has one thread, whose number is the process's."""
        for other in [one for one, pid in self.group_of.items() if pid == thread and one != thread]:
            del self.group_of[other]
        self.groups[thread] = Group(thread, threads={thread})
        self.group_of[thread] = thread

    def gone(self, thread: int, status: int) -> None:
        """Handles the end of a thread."""
        pid = self.group_of.pop(thread, None)
        if pid in self.groups:
            self.groups[pid].threads.discard(thread)
        if thread == self.root:
            self.root_status = status
        if pid == thread:
            self.groups.pop(pid, None)

    # ---- The end of a process ----

    def at_exit(self, thread: int) -> None:
        """Handles a thread that is stopped at its end. A thread that ends alone goes on. Otherwise it is held until
        the others of its process are stopped too."""
        group = self.groups.get(self.group_of.get(thread, 0))
        call_at, stack_at, exit_number = self.layout
        words = registers_of(thread)
        status = event_message(thread)
        alone = words[call_at] == exit_number and status & 0x7F == 0
        if group is None or group.told or (alone and not group.held and
                                           self.any_lives(group, group.threads - {thread})):
            ptrace(CONT, thread)
            return
        if not group.held:
            group.since, group.status = time.monotonic(), status
        group.held[thread] = (words, words[stack_at])

    @staticmethod
    def any_lives(group: Group, threads: Iterable[int]) -> bool:
        """Returns whether any of the threads has not ended."""
        return any(lives(group.pid, thread) for thread in threads)

    def tell_if_all(self, group: Group) -> None:
        """Calls at_end once all threads of the process are held or late, and lets them go on."""
        if time.monotonic() - group.since < LATE_SECONDS and self.any_lives(group,
                                                                            threads_of(group.pid) - set(group.held)):
            return
        group.told = True
        wanted = group.pid == self.root or self.children
        if wanted and group.is_program:
            thread = group.pid if group.pid in group.held else min(group.held)
            self.at_end(Ending(group.pid, thread, group.status, group.held))
        for thread in group.held:
            try:
                ptrace(CONT, thread)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    raise


def why_forbidden(error: OSError) -> str:
    """Returns why tracing failed, as a text."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    text = f"this process may not watch its own child ({error.strerror}"
    if scope.exists():
        text += f"; kernel.yama.ptrace_scope is {scope.read_text().strip()}, and 3 forbids it to all"
    return text + "); a sandbox may forbid ptrace, as containers with --cap-drop or an own seccomp profile do"


def end_as(status: int) -> NoReturn:
    """Ends this process as the program ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    click.get_current_context().exit(shell_status(status))


def shell_status(status: int) -> int:
    """Returns the number that a shell shows for a status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def ending_text(status: int) -> str:
    """Returns how a program ended, in words."""
    if os.WIFSIGNALED(status):
        return f"was ended by {signal_name(os.WTERMSIG(status))}"
    return f"ended with status {os.WEXITSTATUS(status)}"
