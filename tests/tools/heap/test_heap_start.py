"""Protects `hakmem heap --start` and `--stop`: the heap profile of a process that was started without any option."""

import json
import subprocess
import time
from types import SimpleNamespace

import blackbox
import pytest
from inprocess import hakmem
from making import run
from steady import FLAGS, SOURCE, steady

from hakmem.live.control import AS_IT_IS, MAGIC, OFF, Control, Unanswered, start_profile, stop_profile
from hakmem.live.memory import LiveError, ProcessMemory

BLOCK = 1024  # bytes of the class in which 1000 bytes are


@pytest.fixture(scope="session")
def steady_program(compiled):
    return compiled(SOURCE, *FLAGS)


@pytest.fixture
def running(steady_program, library):
    with steady(steady_program, library) as process:
        yield process


def sites(pid):
    """{function: bytes in use that it allocated itself}"""
    done = hakmem("heap", pid, "--json")
    assert done.status == 0, done.report()
    return {site["name"]: site["flat"]["inuse_space"] for site in json.loads(done.stdout)["sites"]}


def test_start_and_stop(running):
    """Every block is a sample, so that the figures are exact."""
    def told(*words):
        done = hakmem("heap", *words, running.pid)
        assert done.status == 0 and not done.stderr and str(running.pid) in done.stdout, done.report()
        return done.stdout
    running.tell("keep", 1000, 2000)  # before the start: in no profile
    running.tell("pulse")
    begun = told("--start", "--rate", "1")
    running.tell("keep", 1000, 20000)
    found = sites(running.pid)
    assert found["keep_hay"] in (20000 * BLOCK, 20000 * BLOCK + 64), "a block of the thread may be in use"
    # The whole stack, although no unwinder was loaded: nothing may be loaded within malloc.
    assert {"keep_many", "main"} <= found.keys() and "libgcc_s" not in running.maps()
    assert told("--start") != begun, "it is on already"
    ended = told("--stop")
    running.tell("keep", 1000, 20000)
    assert sites(running.pid)["keep_hay"] - found["keep_hay"] in (-64, 0)
    running.tell("drop")
    assert sites(running.pid).get("keep_hay", 0) in (0, 64)
    assert told("--stop") != ended, "it is off already"


def test_seconds(running, monkeypatch):
    """The program allocates while the command waits. The test does so in place of the wait, so that a loaded machine
    cannot put it elsewhere. A profile without a sample is an error: 64 bytes become one of 1 TiB in 10^10 runs once."""
    waits = []

    def wait(seconds):
        waits.append((seconds, Control(ProcessMemory(running.pid)).state().profile_on))
        running.tell("keep", *(waits[1:] and (64, 1) or (3000, 5000)))
    running.tell("keep", 3000, 5000)  # before: not shown
    running.tell("pulse")
    monkeypatch.setattr("hakmem.heap.session.time", SimpleNamespace(sleep=wait))
    done = run("--start", "--seconds", "1.6", "--rate", "1", running.pid, "--json")
    assert done.exit_code == 0 and waits == [(1.6, True)] and str(running.pid) in done.stderr, done.output
    (flat,) = (site["flat"] for site in json.loads(done.stdout)["sites"] if site["name"] == "keep_hay")
    assert flat["inuse_space"] in (5000 * 3072, 5000 * 3072 + 64)
    assert not Control(ProcessMemory(running.pid)).state().profile_on
    done = run("--start", "--seconds", "0.2", "--rate", "1T", running.pid)
    assert done.exit_code == 1 and str(running.pid) in done.stderr and "0.2 s" in done.stderr, done.output
    assert len(waits) == 2 and not Control(ProcessMemory(running.pid)).state().profile_on


def test_a_thread_whose_calls_all_hit(running):
    """The tool sets its table of classes to 0. The library fills it again, with runs while calls are counted (T8)."""
    running.tell("spin")
    control = Control(ProcessMemory(running.pid))
    place = control.descriptor.fields["thread_cache.class_of"]

    def tables():
        return [control.memory.read(address + place.offset, place.count) for address in control.caches()]
    deadline = time.monotonic() + blackbox.HANG
    while len(before := tables()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # the new thread has no cache before its first call
    assert len(before) >= 2
    assert start_profile(control) == 512 << 10
    assert control.state().profile_on
    counted = [
        bytes(number + control.descriptor.fields["thread_cache.bins"].count for number in table) for table in before
    ]

    def follow(wanted):
        deadline = time.monotonic() + blackbox.HANG
        while tables() != wanted and time.monotonic() < deadline:
            running.tell("keep", 64, 10)  # the other thread makes calls, too
            time.sleep(0.05)
        assert tables() == wanted
    follow(counted)
    assert len(control.nudge()) == len(before)
    stop_profile(control)
    follow(before)
    assert b"\0" not in before[0]


def test_an_idle_process_follows_with_its_next_call(running):
    begun = hakmem("heap", "--start", running.pid)
    assert (begun.status, begun.stdout) == (0, ""), begun.report()
    assert f"hakmem heap --stop {running.pid}" in begun.stderr
    control = Control(ProcessMemory(running.pid))
    number = control.request(profile_mean=4096)
    with pytest.raises(Unanswered, match=rf"{running.pid} .*0.5 s"):
        control.await_answer(number, seconds=0.5)
    assert not control.state().profile_on
    running.tell("keep", 64, 1)
    control.await_answer(number)
    assert control.state().profile_on


def test_it_ends_by_itself(running):
    """The profile ends by itself if the tool that would have ended it was killed. It has ended at the first call after
    its time; that it was on is seen by its samples."""
    control = Control(ProcessMemory(running.pid))
    number = control.request(profile_mean=1, profile_ms=300)
    running.tell("keep", 5000, 100)
    control.await_answer(number)
    time.sleep(0.4)
    running.tell("keep", 5000, 100)
    assert not control.state().profile_on and 0 < sites(running.pid)["keep_hay"] <= 100 * 5120


def test_a_child_goes_on_with_it(compiled, library, tmp_path):
    source = tmp_path / "forks.py"
    source.write_text("import os, sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\nkeep = [bytearray(5000) "
                      "for _ in range(500)]\n"
                      "pid = os.fork()\nprint(pid or 'child', flush=True)\nwhile True:\n    keep = bytes(5000), "
                      "bytes(9000)\n"
                      "    time.sleep(0.01)\n")
    process = subprocess.Popen(["/usr/bin/python3", source], env=blackbox.environment(
        {"PYTHONMALLOC": "malloc"}, preload=library), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        assert process.stdout.readline() == "ready\n"
        control = Control(ProcessMemory(process.pid))
        number = control.request(profile_mean=4096)
        process.stdin.write("\n")
        process.stdin.flush()
        child = int(next(line for line in (process.stdout.readline(), process.stdout.readline()) if line != "child\n"))
        control.await_answer(number)
        of_child = Control(ProcessMemory(child))
        assert of_child.state().profile_on
        of_child.await_answer(of_child.request(profile_mean=OFF))
        assert not of_child.state().profile_on and control.state().profile_on
    finally:
        blackbox.stop_session(process)
        process.communicate()


class Altered(ProcessMemory):
    """A process whose library has another magic."""

    written = 0

    def read(self, address, size):
        data = super().read(address, size)
        return b"HAKMEM\x01control\x02\0" if data == MAGIC else data


def test_nothing_is_written_where_it_may_do_harm(running, monkeypatch):
    monkeypatch.setattr(Control, "write", lambda *_: pytest.fail("something was written"))
    with pytest.raises(LiveError, match=str(running.pid)):
        Control(Altered(running.pid))
    sound = Control(ProcessMemory(running.pid)).descriptor

    def changed(**values):
        made = type(sound)(sound.address, sound.version, dict(sound.types), dict(sound.fields), dict(sound.constants),
                           dict(sound.roots))
        for name, value in values.items():
            getattr(made, name).update(value)
        return made

    for made in (changed(roots={"outside": sound.roots["hak_window"]}), changed(roots={"outside": 0x1000}),
                 changed(constants={"OUTSIDE_ASKED": 9}),
                 changed(fields={"outside.answered": sound.fields["outside.error"]})):
        with pytest.raises(LiveError, match=str(running.pid)):
            Control(ProcessMemory(running.pid), made)
    without = changed()
    del without.roots["outside"]
    with pytest.raises(LiveError, match=str(running.pid)):
        Control(ProcessMemory(running.pid), without)


def test_values_out_of_range_do_no_harm(running):
    """The library takes any value for a number of bytes."""
    control = Control(ProcessMemory(running.pid))
    for mean in (1, 2, (1 << 64) - 2, 1 << 63, AS_IT_IS, OFF):
        number = control.request(profile_mean=mean, guard_mean=AS_IT_IS, profile_ms=(1 << 64) - 1)
        running.tell("keep", 100, 50)
        control.await_answer(number)
    assert not control.state().profile_on
    running.tell("drop")


def test_wrong_use():
    for arguments, names in ((("--start", "--stop", "1"), ("--start", "--stop")), (("--rate", "4K", "1"), ("--rate",)),
                             (("--start", "--rate", "many", "1"), ("--rate", "many")),
                             (("--start", "--rate", "2T", "1"), ("--rate", "2T")),
                             (("--seconds", "5", "1"), ("--seconds", "--start")), (("--start", "1", "2"), ("PID",)),
                             (("--start", "--seconds", "9999", "1"), ("--seconds",))):
        hakmem("heap", *arguments).says(2, *names)
    hakmem("heap", "--start", "999999999").says(1, "999999999")
