"""Runs servers and long programs with and without HAKMEM: starts them, proves their allocator, measures and ends them.

compare() calls a test's function with a Place on the system's allocator, then with a Place on HAKMEM. It asserts that
the two calls returned the same. HAKMEM_TEST_LOAD is the number of seconds that the first call puts load on its program;
the second call repeats as many rounds. Without the variable each call makes one round.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import blackbox

# What compare() measured: (name, figures on the system's allocator, figures on HAKMEM). conftest.py prints it.
MEASURED = []

SAMPLE_SECONDS = 0.2
END_SECONDS = blackbox.HANG


def is_root():
    return os.geteuid() == 0


def daemon(name):
    """The path of a server's program, which may be outside of the user's PATH."""
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    assert found, f"{name} is not installed; tools/packages/programs.txt names what is needed"
    return found


# A part of nginx's configuration: where it keeps request bodies and answers of upstream servers, in a place's folder.
NGINX_FOLDERS = """
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
"""


def free_port(start=None):
    """A free port at or above `start`, below the kernel's ports for outgoing connections."""
    start = start or 20000 + os.getpid() % 9000
    for port in range(start, start + 3000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


def give(folder, user, group):
    """Changes the owner of the folder and of all in it."""
    for path in (folder, *Path(folder).rglob("*")):
        shutil.chown(path, user, group)


def read(path):
    """The text of a file of /proc, or an empty text when its process has ended."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def kilobytes(text, field):
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def processes():
    """{process: (parent, session, start time)}. An id with its start time names one process for good."""
    found = {}
    for entry in os.listdir("/proc"):
        stat = read(f"/proc/{entry}/stat") if entry.isdigit() else ""
        if stat:
            fields = stat[stat.rindex(")") + 2 :].split()
            found[int(entry)] = (int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def family_of(root):
    """{process: start time} of the process, its descendants, and the others in its session."""
    found = processes()
    family = {pid for pid, (_, session, _) in found.items() if root in (pid, session)}
    while True:
        more = {pid for pid, (parent, _, _) in found.items() if parent in family} - family
        if not more:
            return {pid: found[pid][2] for pid in family}
        family |= more


class Program:
    """A program in the background. A thread of the test samples the memory of the program and its children."""

    def __init__(self, place, argv, env=None, cwd=None, stdin=None):
        self.argv = [str(argument) for argument in argv]
        self.place = place
        self.processes = 0
        self.hwm = self.pss = self.last = 0
        self.on_library = False
        self.known = {}
        self.log = place.folder / f"output-{len(place.programs)}"
        self.errors = place.folder / f"errors-{len(place.programs)}"
        place.programs.append(self)
        owner = {"user": place.user, "group": place.group, "extra_groups": []} if place.user else {}
        with open(self.log, "wb") as output, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                self.argv,
                env=blackbox.environment(env, place.preload),
                cwd=cwd or place.folder,
                stdin=open(stdin, "rb") if stdin else subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                **owner,
            )
        self.over = threading.Event()
        self.sampler = threading.Thread(target=self.sample_until_over, daemon=True)
        self.sampler.start()

    def sample_until_over(self):
        # Samples often at first, to see even a brief program with its libraries mapped.
        for number in range(100):
            if self.over.wait(SAMPLE_SECONDS / 20):
                return
            self.on_library |= "libhakmem" in read(f"/proc/{self.process.pid}/maps")
            if number % 10 == 9:
                self.sample()
        while not self.over.wait(SAMPLE_SECONDS):
            self.sample()

    def sample(self):
        family = family_of(self.process.pid)
        pss = [kilobytes(read(f"/proc/{pid}/smaps_rollup"), "Pss") for pid in family]
        self.known.update(family)
        self.processes = max(self.processes, sum(1 for kib in pss if kib))
        if any(pss):
            self.last = sum(pss)
        self.pss = max(self.pss, sum(pss))
        self.hwm = max(self.hwm, kilobytes(read(f"/proc/{self.process.pid}/status"), "VmHWM"))

    def peak(self):
        """KiB: the peak of a single process, or of the sum over several, where a shared page counts once."""
        return self.hwm if self.processes <= 1 else self.pss

    @property
    def stdout(self):
        return read(self.log)

    def output(self):
        return self.stdout + read(self.errors)

    def report(self):
        return f"{' '.join(self.argv)}: status {self.process.poll()}\n{self.output()[-6000:]}"

    def until(self, ready):
        """Waits until ready() is true. The program must not end before."""
        deadline = time.monotonic() + END_SECONDS
        while not ready():
            assert self.process.poll() is None, f"ended too early\n{self.report()}"
            if time.monotonic() > deadline:
                raise AssertionError(f"not ready\n{blackbox.thread_stacks(self.process.pid)}\n{self.report()}")
            time.sleep(0.05)
        return self

    def check(self):
        """Every process of the program has the library mapped, or none on the system's allocator."""
        self.sample()
        assert self.process.poll() is None, f"ended too early\n{self.report()}"
        maps = [text for text in (read(f"/proc/{pid}/maps") for pid in family_of(self.process.pid)) if text]
        assert maps
        assert all(("libhakmem" in text) == bool(self.place.preload) for text in maps)

    def wait(self, timeout):
        """Returns the exit status. A program that does not end fails the test."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            stacks = blackbox.thread_stacks(self.process.pid)
            raise AssertionError(f"no end after {timeout} s\n{stacks}\n{self.report()}") from None
        finally:
            self.over.set()
            self.sampler.join()
        return self.process.returncode

    def stop(self, sign=signal.SIGTERM):
        """Ends a server as its users do. Its exit status must be 0, and HAKMEM must not have printed anything."""
        self.check()
        self.process.send_signal(sign)
        status = self.wait(END_SECONDS)
        assert status == 0, self.report()
        assert "hakmem:" not in self.output(), self.report()

    def kill(self):
        """Kills the program and all that it started, in any state."""
        self.over.set()
        self.sampler.join()
        if self.process.poll() is None:
            self.known.update(family_of(self.process.pid))
        for pid, (_, _, began) in processes().items():
            if self.known.get(pid) == began:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Place:
    """A folder, an allocator and a user for the programs of one side of a comparison.

    user: root runs the programs as this user, who owns the folder and can read the copy of the library in it.
    """

    def __init__(self, preload, rounds, user=None):
        self.folder = Path(tempfile.mkdtemp(prefix="hakmem-server-", dir="/tmp"))
        self.rounds = rounds
        self.programs = []
        self.user = self.group = None
        self.preload = preload
        if user and is_root():
            self.user, self.group = user, "nogroup"
            self.folder.chmod(0o755)
            shutil.chown(self.folder, user, self.group)
            if preload:
                self.preload = self.folder / "libhakmem.so"
                shutil.copy(preload, self.preload)
                self.preload.chmod(0o755)

    def environment(self, env):
        return {"HOME": str(self.folder), "TMPDIR": str(self.folder), **(env or {})}

    def start(self, argv, env=None, cwd=None, stdin=None):
        """Starts a program; stdin is the path of a file."""
        return Program(self, argv, self.environment(env), cwd, stdin)

    def run(self, argv, *, env=None, cwd=None, stdin=None, timeout=60, proof=False):
        """Runs a program to its end. The exit status must be 0.

        proof: asserts that the program ran on this side's allocator. The program must run long enough to be sampled.
        """
        if stdin is not None:
            source = self.folder / "input"
            source.write_text(stdin)
            stdin = source
        program = self.start(argv, env, cwd, stdin)
        status = program.wait(timeout * blackbox.SLOWER)
        assert status == 0, program.report()
        assert "hakmem:" not in program.output(), program.report()
        if proof:
            assert program.on_library == bool(self.preload), program.report()
        return blackbox.Result(status, program.stdout, read(program.errors))

    def close(self):
        for program in reversed(self.programs):
            program.kill()
        shutil.rmtree(self.folder)

    def figures(self):
        """(peak, last) KiB of the program with the highest peak."""
        most = max(self.programs, key=Program.peak)
        return most.peak(), most.last


class Rounds:
    """Iterates 0, 1, 2 and so on until HAKMEM_TEST_LOAD seconds have passed, at least once; then the same number
    again."""

    def __init__(self):
        self.seconds = float(os.environ.get("HAKMEM_TEST_LOAD", "0"))
        self.count = None

    def __iter__(self):
        start, number = time.monotonic(), 0
        while number == 0 or (
            number < self.count if self.count is not None else time.monotonic() - start < self.seconds
        ):
            yield number
            number += 1
        self.count = number


def compare(name, use, user=None):
    """Runs use(place) on the system's allocator and on HAKMEM, asserts equal answers, and returns the answer."""
    rounds = Rounds()
    answers, figures = [], []
    for preload in (None, blackbox.LIBRARY):
        place = Place(preload, rounds, user)
        try:
            answers.append(use(place))
            figures.append(place.figures())
        finally:
            place.close()
    MEASURED.append((name, *figures))
    plain, ours = answers
    assert ours == plain, f"{name}: {first_difference(plain, ours)}"
    return ours


def on_hakmem(use):
    """The result of use(place) on HAKMEM, for a program whose answer on the system's allocator is known."""
    place = Place(blackbox.LIBRARY, Rounds())
    try:
        return use(place)
    finally:
        place.close()


def first_difference(plain, ours):
    """The first parts in which two answers differ. An answer is a list, a pair or a text."""
    if isinstance(plain, str) and "\n" in plain:
        plain, ours = plain.splitlines(), ours.splitlines()
    if isinstance(plain, (list, tuple)) and len(plain) == len(ours):
        for one, other in zip(plain, ours):
            if one != other:
                return first_difference(one, other)
    return f"system's allocator: {str(plain)[:2000]}\nHAKMEM: {str(ours)[:2000]}"
