"""Protects hakmem top on real processes: figures against the program's and the kernel's, a real terminal, errors."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import blackbox
import busy as programs
import pexpect
import pytest
from inprocess import hakmem

from hakmem.live.memory import LiveError, NoProcess
from hakmem.live import tables
from hakmem.live.sample import Sampler, memory_of, rates

PYTHON = sys.executable
SECONDS = blackbox.HANG


def environment():
    return blackbox.environment({"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1"})


def row_of(table, column, value):
    place = [each.title for each in table.columns].index(column)
    titles = [each.title for each in table.columns]
    return next(dict(zip(titles, row, strict=True)) for row in table.rows if row[place] == value)


@contextmanager
def screen(busy, interval, dimensions=(40, 150)):
    """A pexpect.spawn of the screen in a terminal of (lines, columns)."""
    run = pexpect.spawn(PYTHON, ["-m", "hakmem", "top", str(busy.pid), "--interval", interval],
                        env={**environment(), "TERM": "xterm-256color"}, dimensions=dimensions,
                        timeout=SECONDS, encoding="utf-8")
    try:
        yield run
    finally:
        run.close(force=True)


@pytest.fixture
def sampler(busy):
    made = Sampler(busy.pid)
    yield made
    made.close()


def test_resident_parts_sum_to_the_rss(sampler):
    sample = sampler.take()
    parts = sample.resident.parts()
    assert sum(parts.values()) == sample.rss
    held = programs.HELD * programs.HELD_CLASS + programs.MINE * programs.MINE_CLASS + programs.HUGE
    # The program's touched blocks are resident and live. Its churn adds three batches of 0.7 MiB at most.
    assert held <= parts["live"] <= held + (6 << 20)
    assert parts["other"] > 1 << 20, "program, C library and stacks"


def test_figures_are_those_of_the_program(sampler):
    sample = sampler.take()
    held = row_of(tables.classes(sample.shot), "block size", programs.HELD_CLASS)
    assert programs.HELD <= held["live"] <= programs.HELD + 200
    mine = row_of(tables.classes(sample.shot), "block size", programs.MINE_CLASS)
    assert programs.MINE <= mine["live"] <= programs.MINE + 20
    heaps = [row for row in sample.shot.threads if row.kind == "thread" and row.state == "live"]
    assert len(heaps) == 3
    main = next(row for row in heaps if row.tid == sampler.pid)
    by_class = tables.thread_classes(sample.shot, main.heap)
    assert row_of(by_class, "block size", programs.HELD_CLASS)["live"] == held["live"]
    by_thread = tables.class_slabs(sample.shot, mine["class"])
    assert sum(row[3] for row in by_thread.rows) == mine["slabs"]
    assert main.heap not in [row[0] for row in by_thread.rows]
    assert row_of(tables.huge(sample.shot), "state", "live")["bytes"] >= programs.HUGE
    assert sum(row[8] for row in tables.superslabs(sample.shot, sample.resident.superslabs).rows) <= sample.rss


def test_rates_and_growth(busy, sampler):
    before = sampler.take()
    busy.grow(20000)

    # Batches of 3,000 blocks go from one thread to another all the time.
    def passed():
        after = sampler.take()
        found = rates(before, after)
        return found.counters["remote_blocks"] > 0 and found.counters["refills"] > 0 and (after, found)
    after, found = blackbox.wait_for(passed, "a batch")
    assert found.minor_faults > 0 and found.rss > 0
    # 20,000 blocks of 1,024 bytes, give or take three batches.
    assert 17 << 20 < after.shot.totals.live - before.shot.totals.live < 23 << 20


FORKING = """
import mmap, os, sys
kept = [bytes(1000) for _ in range(50000)]
# Read and never written: the page of zeros, in no RSS.
zeros = mmap.mmap(-1, 32 << 20)
print(sum(zeros[at] for at in range(0, len(zeros), 4096)), flush=True)
child = os.fork()
if child == 0:
    print("child", flush=True)
sys.stdin.readline()
"""


def test_pages_shared_with_a_fork_are_live(library):
    process = subprocess.Popen(["/usr/bin/python3", "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=blackbox.environment({"PYTHONMALLOC": "malloc"}, preload=library))
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["0\n", "child\n"]
        sampler = Sampler(process.pid)
        assert memory_of(sampler.memory)[1], "the child shares its parent's memory"
        sample = sampler.take()
        assert 50 << 20 < sample.resident.live < 90 << 20
        assert sum(sample.resident.parts().values()) == sample.rss and sample.resident.other > 1 << 20
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_memory_that_was_only_read_is_not_resident(library):
    script = "import ctypes; libc = ctypes.CDLL(None); libc.calloc.restype = ctypes.c_void_p; " \
             "libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]; " \
             "at = libc.calloc(1, 64 << 20); print(libc.memchr(at, 1, 64 << 20), flush=True); input()"
    process = subprocess.Popen(["/usr/bin/python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=blackbox.environment({"HAKMEM_THP": "never"}, preload=library))
    try:
        assert process.stdout.readline() == "0\n"
        sample = Sampler(process.pid).take()
        assert sample.shot.totals.huge_live >= 64 << 20 and sample.rss < 40 << 20
        assert sample.resident.live < 10 << 20 and sample.resident.other > 1 << 20
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_the_end_of_the_process(busy, sampler):
    sampler.take()
    busy.end()
    with pytest.raises(NoProcess):
        sampler.take()


def test_once_and_a_picture(busy, tmp_path):
    """One screen as text or as a picture: the PID, the bar of memory, the rates, and the row of each class."""
    done = hakmem("top", busy.pid, "--once", "--interval", "0.3")
    assert done.status == 0 and "\x1b" not in done.stdout, done.report()
    lines = done.stdout.splitlines()
    assert str(busy.pid) in lines[0] and set(lines[2]) == {"█"}
    assert re.search(r"refills [\d.,]+/s", done.stdout)
    held = next(line.split() for line in lines if line.split()[:1] == [str(programs.HELD_CLASS)])
    assert int(held[3].replace(",", "")) >= programs.HELD
    picture = tmp_path / "top.svg"
    assert hakmem("top", busy.pid, "--svg", picture, "--interval", "0.2").status == 0
    drawn = picture.read_text(encoding="utf-8").replace("&#160;", " ")
    assert drawn.startswith("<svg") and str(busy.pid) in drawn and str(programs.HELD_CLASS) in drawn
    hakmem("top", busy.pid, "--svg", tmp_path / "none/top.svg").says(1, "none/top.svg", os.strerror(2))


def test_in_a_terminal(busy):
    """The screen in a real terminal: drawn, controlled by a key, and restored at the end. Its other keys are tested
    without a terminal: a terminal takes Escape and the next key for one."""
    with screen(busy, "0.2") as run:
        run.expect("3,072")
        run.send("q")
        run.expect(re.escape("\x1b[?1049l"))
        run.expect(pexpect.EOF)
        run.wait()
        assert run.exitstatus == 0


def test_in_a_terminal_the_end_is_told(busy):
    """The last picture stands until a key ends the command, which then tells the PID."""
    with screen(busy, "0.1", (24, 80)) as run:
        run.expect("3,072")
        busy.end()
        run.expect(f"ended.*{busy.pid}")
        assert run.isalive()
        run.send("q")
        run.expect(re.escape("\x1b[?1049l"))
        run.expect(str(busy.pid))
        run.expect(pexpect.EOF)
        run.wait()
        assert run.exitstatus == 0


def test_what_cannot_be_looked_at(program, busy):
    hakmem("top", "4194304", "--once").says(1, "4194304")
    hakmem("top", "0", "--once").says(2, "PID")
    hakmem("top", "x?", "--once").says(1, "'x?'")
    hakmem("top", busy.pid, "--once", "--interval", "0").says(2, "--interval")
    hakmem("top", busy.pid).says(2, "--once")
    hakmem("top", busy.pid, "--once", "--svg", "x.svg").says(2, "--once", "--svg")
    with programs.busy(program, None) as other:
        hakmem("top", other.pid, "--once").says(1, other.pid)


@contextmanager
def becoming(library, variable):
    """A Python on HAKMEM, and a function that makes it exec /bin/sleep with LD_PRELOAD=variable."""
    script = "import os, sys; print('ready', flush=True); sys.stdin.readline(); " \
             "os.environ['LD_PRELOAD'] = sys.argv[1]; os.execv('/bin/sleep', ['sleep', '100000'])"
    process = subprocess.Popen(["/usr/bin/python3", "-c", script, str(variable)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, env=blackbox.environment(preload=library))

    def become():
        process.stdin.write("\n")
        process.stdin.flush()
        end = time.monotonic() + SECONDS
        # It sleeps, so the dynamic linker has finished.
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n" or \
                Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end
            time.sleep(0.01)

    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid, become
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def taken_at_last(sampler):
    """The final result of take(), which may refuse while it finds that the process changed."""
    try:
        return sampler.take()
    except LiveError:
        return sampler.take()


def test_a_process_that_becomes_one_without_hakmem(library):
    with becoming(library, "") as (pid, become):
        sampler = Sampler(pid)
        sampler.take()
        become()
        with pytest.raises(LiveError, match=str(pid)):
            taken_at_last(sampler)


def test_a_process_that_becomes_another_on_hakmem(library):
    with becoming(library, library) as (pid, become):
        sampler = Sampler(pid)
        before = sampler.take()
        become()
        after = taken_at_last(sampler)
        assert after.program == 2 and rates(before, after) is None
        assert after.shot.command == "sleep" and after.resident.live > 0 and after.resident.metadata > 0
        assert sum(after.resident.parts().values()) == after.rss < before.rss
