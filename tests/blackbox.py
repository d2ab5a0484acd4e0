"""Runs real programs with and without HAKMEM, for the tests of programs/, misuse/ and life/.

Every run has a time limit, its own session (so that a run that hangs is ended with all its children), and an
environment free of HAKMEM_*, LD_* and MALLOC_* variables but for those that the test gives.
"""

import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARY = Path(os.environ.get("HAKMEM_LIB", REPOSITORY / "build/release/lib/libhakmem.so")).absolute()
LIBRARY_FOLDER = LIBRARY.parent
INCLUDE_FOLDER = REPOSITORY / "include"
# A cross build's compilers, and the emulator for their programs (tests/CMakeLists.txt).
COMPILERS = {".c": os.environ.get("HAKMEM_TEST_CC", "gcc"), ".cpp": os.environ.get("HAKMEM_TEST_CXX", "g++")}
EMULATOR = os.environ.get("HAKMEM_TEST_EMULATOR", "").split()
EMULATORS_WORD = re.compile(r"^qemu: uncaught target signal .*\n", re.MULTILINE)

# Debian's ccache has links here with the compilers' names.
CCACHE_COMPILERS = Path("/usr/lib/ccache")

PRIVATE_VARIABLE = re.compile(r"^(HAKMEM_|QEMU_|LD_|MALLOC_|GLIBC_TUNABLES|PYTHON|GIT_|NODE_|GO|CARGO_|RUST)")


@dataclass
class Result:
    """A program's exit status (negative: the signal that ended it) and its output, decoded leniently."""

    status: int
    stdout: str
    stderr: str

    def report(self):
        return f"status {self.status}\n--- stdout ---\n{self.stdout[-4000:]}\n--- stderr ---\n{self.stderr[-4000:]}"


def environment(extra=None, preload=None):
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env["LC_ALL"] = "C.UTF-8"
    env["TZ"] = "UTC"
    if preload:
        env["LD_PRELOAD"] = ":".join(str(path) for path in ([preload] if isinstance(preload, (str, Path)) else preload))
    env.update(extra or {})
    return env


def compile_cache(folder):
    """Variables for a build in the folder: ccache answers where the same was compiled before, in another folder too. A
    build whose bytes are compared does without, because a cached object may name the folder of another build."""
    if not CCACHE_COMPILERS.is_dir():
        return {}
    return {"PATH": f"{CCACHE_COMPILERS}:{os.environ['PATH']}", "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}


def stop_session(process):
    """Ends the process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


# Seconds after which a test may take a program for hung: far more than any program needs, however busy the machine is.
HANG = 1200
# Tests state seconds for an idle machine. Here other builds and tests run besides.
SLOWER = 20


def wait_until(condition, seconds=60):
    """Waits until the condition holds. Returns whether it did within the time, which an idle machine never needs."""
    end = time.monotonic() + seconds * SLOWER
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def wait_for(condition, what, seconds=HANG):
    """Waits until the condition holds and returns its value. Fails if it does not in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not there after {seconds} seconds"
        time.sleep(0.05)
    return found


def has_ended(pid):
    """Whether the process runs no more. In a container whose first process reaps no orphans it stays as a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def run(argv, *, preload=None, env=None, cwd=None, stdin=None, timeout=60, user=None, limits=None):
    """Runs a program to its end. limits: {resource.RLIMIT_*: bytes}, set in the child only. A hang fails the test."""

    def apply_limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for which, value in (limits or {}).items():
            resource.setrlimit(which, (value, value))

    argv = [*EMULATOR, *(str(argument) for argument in argv)]
    process = subprocess.Popen(
        argv,
        env=environment(env, preload),
        cwd=cwd,
        user=user,
        start_new_session=True,
        preexec_fn=apply_limits,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timeout *= SLOWER
    try:
        out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        stacks = thread_stacks(process.pid)
        stop_session(process)
        out, err = process.communicate()
        raise AssertionError(
            f"{' '.join(argv)}: no end after {timeout} s (preload {preload})\n{stacks}\n"
            + Result(0, out.decode(errors="replace"), err.decode(errors="replace")).report()
        ) from None
    err = err.decode(errors="replace")
    return Result(process.returncode, out.decode(errors="replace"), EMULATORS_WORD.sub("", err) if EMULATOR else err)


def start(argv, *, env=None, preload=None, **more):
    """Starts a program in its own session, with text pipes for input and output."""
    return subprocess.Popen(argv, env=environment(env, preload), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, start_new_session=True, **more)


def call(*argv, timeout=HANG, **variables):
    """Runs a tool with variables in its environment. It must succeed. Returns its output."""
    result = subprocess.run([str(word) for word in argv], env=environment(variables), capture_output=True, text=True,
                            timeout=timeout, check=False)
    assert result.returncode == 0, f"{argv}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def thread_stacks(pid):
    """The stacks of a hanging process and of its children from gdb, only for the failure message."""
    try:
        children = subprocess.run(["ps", "-o", "pid=", "--sid", str(pid)], capture_output=True, text=True,
                                  check=False).stdout
        return "\n".join(stacks_of(each) for each in dict.fromkeys([str(pid), *children.split()]))
    except (OSError, subprocess.TimeoutExpired):
        return "(no stacks: gdb or ps is not to be had)"


def stacks_of(pid):
    found = subprocess.run(
        ["gdb", "-p", pid, "-batch", "-ex", "thread apply all backtrace 12"],
        capture_output=True,
        timeout=HANG,
        env=environment(),
        check=False,
    )
    return f"process {pid}:\n" + found.stdout.decode(errors="replace")[-6000:]


def run_with_proof(argv, **arguments):
    """Runs under HAKMEM, and proves by the dynamic linker's log that the program's malloc is HAKMEM's."""
    with tempfile.TemporaryDirectory(prefix="hakmem-ld-") as folder:
        env = dict(arguments.pop("env", None) or {})
        env["LD_DEBUG"] = "bindings"
        env["LD_DEBUG_OUTPUT"] = f"{folder}/log"
        result = run(argv, preload=LIBRARY, env=env, **arguments)
        assert bound_to_library(folder), f"malloc of {argv[0]} was not bound to {LIBRARY}\n{result.report()}"
        return result


def bound_to_library(folder, pid=None):
    """Whether a linker log in the folder (of one process, or of any) binds an allocating function to the library."""
    wanted = re.compile(
        r"binding file \S+ \[0\] to "
        + re.escape(str(LIBRARY))
        + r" \[0\]: normal symbol `(malloc|calloc|realloc|_Znwm)'"
    )
    logs = [Path(folder, f"log.{pid}")] if pid else Path(folder).iterdir()
    return any(wanted.search(log.read_text(errors="replace")) for log in logs)


def run_done(argv, **arguments):
    """Runs under HAKMEM a program that checks what it does. It must print "done" alone. Returns the result."""
    result = run_with_proof(argv, **arguments)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
    return result


def run_both(argv, *, normalize=None, expect_status=0, **arguments):
    """Runs under the system's allocator, then under HAKMEM. Both must end with expect_status and print the same.

    normalize: applied to both outputs before the comparison, for output that varies on one allocator, too.
    Returns the second result.
    """
    normalize = normalize or (lambda text: text)
    plain = run(argv, **dict(arguments))
    assert plain.status == expect_status, f"under the system's allocator: {plain.report()}"
    ours = run_with_proof(argv, **dict(arguments))
    assert ours.status == expect_status, f"under HAKMEM: {ours.report()}"
    assert normalize(ours.stdout) == normalize(plain.stdout)
    assert normalize(ours.stderr) == normalize(plain.stderr)
    return ours


def compile_program(source, output, *flags, compiler=None, shared=False):
    """Builds a C or C++ source file. Every warning is an error, so that the tests' sources stay sound."""
    source = Path(source)
    cxx = source.suffix == ".cpp"
    compiler = compiler or COMPILERS[source.suffix]
    kind = ["-shared", "-fPIC"] if shared else []
    command = [
        compiler,
        "-std=c++17" if cxx else "-std=gnu17",
        "-O1",
        "-g",
        "-fno-builtin",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        *kind,
        f"-I{INCLUDE_FOLDER}",
        str(source),
        "-o",
        str(output),
        *map(str, flags),
    ]
    built = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert built.returncode == 0, f"{' '.join(command)}\n{built.stderr}"
    return Path(output)


def requests_of(browser):
    """The addresses that a page requested since it was opened, without Chromium's own requests (its start page)."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith("chrome://")]
