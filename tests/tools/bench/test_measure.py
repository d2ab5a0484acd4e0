"""Protects the launcher: its figures of a program, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import blackbox
import pytest
import tool

HOLD = Path(__file__).with_name("hold.c")


def alive(marker):
    """The processes with the marker in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


def test_peak_is_the_programs_own(tmp_path):
    """The launcher's parent is big, and so is what it warms. The figures of a small program are small."""
    ballast = bytearray(256 << 20)
    done, figures = tool.measure(tmp_path, "true", warm=64)
    assert done.returncode == 0
    assert 300 < figures["peak_rss_kib"] < 8192 < len(ballast) >> 10
    assert figures["soft_faults"] < 5000
    assert figures["status"] == figures["signal"] == figures["left_behind"] == figures["timed_out"] == 0


def test_rss_is_averaged_over_time(compiled, tmp_path):
    done, figures = tool.measure(tmp_path, compiled(HOLD), 64, 600, 200)
    assert done.returncode == 0
    assert figures["readings"] > 0
    assert 64 * 1024 <= figures["peak_rss_kib"] < 68 * 1024
    # Three quarters of it on an idle machine. It stays below the peak, because the program holds nothing at its end.
    assert 0 < figures["mean_rss_kib"] < figures["peak_rss_kib"]


def test_children_of_any_thread_count(compiled, tmp_path):
    """Eight children of 16 MiB: the average has their sum, the peak and the private memory are the largest's alone. The
    sum is over the peak even if starting them took seven times as long as they hold it."""
    done, figures = tool.measure(tmp_path, compiled(HOLD, "-pthread"), 16, 1200, 0, 8, options=("-p",))
    assert done.returncode == 0
    assert figures["peak_rss_kib"] < figures["mean_rss_kib"] < 8 * 20 * 1024
    assert 16 * 1024 <= figures["peak_rss_kib"] < 20 * 1024
    assert figures["private_kib"] < 20 * 1024


PARTLY_PRIVATE = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    seen = sum(mapped[at] for at in range(0, len(mapped), 4096))
    own = bytearray(b"x") * (24 << 20)
    time.sleep(1)
"""


def test_private_dirty_memory_is_part_of_rss(tmp_path):
    """Pages of a mapped file that were read are resident, but not private dirty memory. They have to be on a disk by
    then: until a page is written back, the kernel calls it dirty."""
    with tempfile.NamedTemporaryFile(dir=tool.BUILD) as backing:
        backing.write(bytes(48 << 20))
        backing.flush()
        os.fsync(backing.fileno())
        done, figures = tool.measure(tmp_path, sys.executable, "-c", PARTLY_PRIVATE, backing.name, options=("-p",))
        assert done.returncode == 0
        assert (48 + 24) * 1024 < figures["peak_rss_kib"]
        assert 0 < figures["private_kib"] < 24 * 1024 + 16 * 1024
        _, figures = tool.measure(tmp_path, sys.executable, "-c", PARTLY_PRIVATE, backing.name)
        assert figures["private_kib"] == -1


def test_a_short_program_has_no_average(tmp_path):
    _, figures = tool.measure(tmp_path, "true", options=("-i", 60000))
    assert figures["readings"] == 0
    assert figures["mean_rss_kib"] == -1


def test_cpu_and_faults_are_those_of_the_tree(tmp_path):
    script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    _, one = tool.measure(tmp_path, "sh", "-c", script)
    _, four = tool.measure(tmp_path, "sh", "-c", f"for j in 1 2 3 4; do sh -c '{script}'; done")
    assert four["user_s"] + four["sys_s"] > one["user_s"] + one["sys_s"], "four times the work"
    assert four["soft_faults"] > 2 * one["soft_faults"]


def test_status_and_signal(tmp_path):
    done, figures = tool.measure(tmp_path, "sh", "-c", "exit 7")
    assert done.returncode == figures["status"] == 7
    assert figures["signal"] == 0
    done, figures = tool.measure(tmp_path, "sh", "-c", "kill -SEGV $$")
    assert done.returncode == figures["status"] == 128 + signal.SIGSEGV
    assert figures["signal"] == signal.SIGSEGV


def test_the_limit_ends_all(tmp_path):
    marker = f"9{os.getpid()}1"
    _, figures = tool.measure(tmp_path, "sh", "-c", f"setsid sleep {marker} & sleep {marker}", options=("-t", 0.4))
    assert figures["timed_out"] == 1 and figures["wall_s"] >= 0.4
    assert alive(marker) == []


def test_what_stays_behind_is_ended(tmp_path):
    marker = f"9{os.getpid()}2"
    done, figures = tool.measure(tmp_path, "sh", "-c", f"setsid sleep {marker} & exit 3")
    assert done.returncode == 3
    assert figures["left_behind"] == 1
    assert alive(marker) == []


@pytest.mark.parametrize("victim", ["launcher", "parent"])
def test_all_ends_with_the_launcher_or_its_parent(tmp_path, victim):
    marker = f"9{os.getpid()}{3 + (victim == 'parent')}"
    command = [tool.LAUNCHER, tmp_path / "out", "0", "", "sh", "-c", f"sleep {marker} & sleep {marker}; true"]
    if victim == "parent":
        command = ["sh", "-c", '"$@"; true', "sh", *command]
    process = subprocess.Popen(command, start_new_session=True)
    blackbox.wait_for(lambda: len(alive(marker)) == 2, "both processes")
    process.send_signal(signal.SIGTERM if victim == "launcher" else signal.SIGKILL)
    process.wait()
    blackbox.wait_for(lambda: alive(marker) == [], "the end of both")


@pytest.mark.parametrize("arguments, message", [
    (["OUT", "0", "", "/no/such/program"], "/no/such/program"),
    (["OUT", "x", "", "true"], "WARM_MIB"),
    (["-t", "-1", "OUT", "0", "", "true"], "-t SECONDS"),
    (["OUT", "0", ""], "PROGRAM"),
    (["/no/such/folder/out", "0", "", "true"], "/no/such/folder/out"),
])
def test_mistakes_are_named(tmp_path, arguments, message):
    words = [str(tmp_path / "out") if word == "OUT" else word for word in arguments]
    done = subprocess.run([tool.LAUNCHER, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert message in done.stderr


def test_the_variable_of_a_child_is_chosen(tmp_path):
    _, figures = tool.measure(tmp_path, "sh", "-c", 'test "$BENCH_PRELOAD" = lib.so -a -z "$LD_PRELOAD"',
                              options=("-v", "BENCH_PRELOAD"), preload="lib.so")
    assert figures["status"] == 0
