"""Protects reports on standard error, also where the program closes it, and programs whose reports have no reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).parent
STATS = {"HAKMEM_SHOW_STATS": "1"}
REPORT = "hakmem: mapped"


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(HERE / "stderr.c")


def run(argv, env=STATS, **arguments):
    result = blackbox.run(argv, preload=blackbox.LIBRARY, env=env, **arguments)
    assert result.status == 0, result.report()
    return result


def numbers(text):
    return {int(word) for word in text.split()}


@pytest.mark.parametrize(
    "argv", [["ls", "/"], ["sort", "/etc/passwd"], ["date"], ["cat", "/etc/passwd"], ["grep", "root", "/etc/passwd"]])
def test_real_tools(argv):
    result = run(argv)
    assert REPORT in result.stderr and REPORT not in result.stdout
    plain = blackbox.run(argv)
    assert argv == ["date"] or result.stdout == plain.stdout


@pytest.mark.parametrize("env, said", [
    ({"HAKMEM_SHOW_STATS": "json"}, '"memory":{"mapped":'),
    ({"HAKMEM_SHOW_STATS": "prometheus"}, "hakmem_memory_mapped_bytes"),
    ({"HAKMEM_FRONT_STATS": "1"}, "fast path"),
    ({"HAKMEM_DEBUG_COUNTERS": "1"}, "debug counters"),
    ({"HAKMEM_TINY_PROFILE": "1"}, "cycle profile"),
    ({"HAKMEM_LEAK_REPORT": "1"}, "hakmem: "),
    ({"HAKMEM_HEAP_PROFILE": "/nowhere/profile"}, "/nowhere/profile"),
])
def test_each_report(program, env, said):
    assert said in run([program, "close", "-"], env).stderr


def test_nothing_is_kept_that_nobody_asked_for(program):
    assert numbers(run([program, "none", "-"], {}).stdout) == {0, 1, 2}
    kept = numbers(run([program, "none", "-"]).stdout) - {0, 1, 2}
    assert len(kept) == 1 and min(kept) >= 20


def test_few_numbers_to_be_had(program):
    import resource
    result = run([program, "close", "-"], limits={resource.RLIMIT_NOFILE: 64})
    assert numbers(result.stdout) == {0, 1, 2, 20} and REPORT in result.stderr
    result = run([program, "close", "-"], limits={resource.RLIMIT_NOFILE: 10})
    assert numbers(result.stdout) == {0, 1, 2} and result.stderr == ""


def test_a_file_that_took_the_number_is_left_alone(program, tmp_path):
    result = run([program, "all", tmp_path / "data"])
    assert result.stderr == "" and (tmp_path / "data").read_bytes() == b""


def test_where_standard_error_leads_by_then(program, tmp_path):
    result = run([program, "redirect", tmp_path / "log"])
    assert result.stderr == "" and REPORT in (tmp_path / "log").read_text()


def test_children_hold_nothing(program):
    """A daemon must not keep a pipe open whose reader waits for its end: it closes its parent's number, as exec
    does."""
    own, child = run([program, "fork", "-"]).stdout.splitlines()
    assert len(numbers(own)) == 4 and numbers(child) == {0, 1, 2}
    listed = run([program, "exec", "-"]).stdout.splitlines()[1:]
    assert len([name for name in listed if int(name) > 10]) == 1, "the one that ls keeps"


UNWRITTEN = """
import ctypes, os, resource, signal
library = ctypes.CDLL(None)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
library.free(ctypes.c_void_p(4096))
blocked = {number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])}
print(*sorted(blocked), *sorted(number.name for number in signal.sigpending()), flush=True)
"""


@pytest.mark.parametrize("to", ["a pipe without a reader", "a file that may not grow"])
def test_output_that_cannot_be_written_ends_no_program(library, tmp_path, to):
    """The system sends SIGPIPE or SIGXFSZ then, which would end the program. A later SIGPIPE of the program's own
    comes; SIGXFSZ stays blocked, and a write past the limit fails."""
    if "pipe" in to:
        reader, stderr = os.pipe()
        os.close(reader)
    else:
        stderr = os.open(tmp_path / "stderr", os.O_WRONLY | os.O_CREAT)
    env = {**os.environ, "LD_PRELOAD": str(library), "HAKMEM_SHOW_STATS": "1", "HAKMEM_ABORT_ON_MISUSE": "0"}
    done = subprocess.run([sys.executable, "-c", UNWRITTEN], stdout=subprocess.PIPE, stderr=stderr, env=env, text=True,
                          timeout=blackbox.HANG)
    os.close(stderr)
    assert (done.returncode, done.stdout.split()) == (0, [] if "pipe" in to else ["SIGXFSZ", "SIGXFSZ"])
