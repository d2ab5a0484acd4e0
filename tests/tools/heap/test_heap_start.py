"""Protects `hakmem heap --start` and `--stop`: the heap profile of a process that was started without any option."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import blackbox
import pytest
from making import run
from steady import FLAGS, SOURCE, steady

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.live.control import AS_IT_IS, MAGIC, OFF, Control, Unanswered, start_profile, stop_profile  # noqa: E402
from hakmem.live.memory import LiveError, ProcessMemory  # noqa: E402

ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PATH": os.environ["PATH"]}


def hakmem(*arguments, **options):
    return blackbox.run([sys.executable, "-m", "hakmem", *map(str, arguments)], env=ENVIRONMENT, **options)


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
    running.tell("keep", 1000, 2000)  # before the start: in no profile
    running.tell("pulse")
    begun = hakmem("heap", "--start", running.pid, "--rate", "4K")
    assert begun.status == 0 and f"process {running.pid} takes a heap profile now, a sample every 4 KiB" in begun.stdout, begun.report(
    )
    running.tell("keep", 1000, 20000)
    found = sites(running.pid)
    # 20,000 blocks of 1,008 bytes, each a sample with a chance of 0.22: within five standard deviations.
    assert 18e6 < found["keep_hay"] < 22.5e6, found
    # The whole stack, although no unwinder was loaded: nothing may be loaded within malloc.
    assert {"keep_many", "main"} <= found.keys() and "libgcc_s" not in running.maps()
    again = hakmem("heap", "--start", running.pid)
    assert again.status == 0 and "takes a heap profile already, a sample every 4 KiB" in again.stdout, again.report()
    ended = hakmem("heap", "--stop", running.pid)
    assert ended.status == 0 and "takes no heap profile any more" in ended.stdout, ended.report()
    running.tell("keep", 1000, 20000)
    assert sites(running.pid)["keep_hay"] == found["keep_hay"]
    running.tell("drop")
    assert sites(running.pid).get("keep_hay", 0) == 0
    assert f"process {running.pid} takes no heap profile\n" == hakmem("heap", "--stop", running.pid).stdout


def test_seconds(steady_program, library, monkeypatch):
    """The program allocates while the command waits. The test does so in place of the wait, so that a loaded machine
    cannot put it elsewhere. Without the governor's bound, which is one of time, the figure is that of the samples."""
    with steady(steady_program, library, HAKMEM_HEAP_PROFILE_OVERHEAD="0") as running:
        waits = []

        def wait(seconds):
            waits.append((seconds, Control(ProcessMemory(running.pid)).state().profile_on))
            running.tell("keep", 3000, 5000)
        running.tell("keep", 3000, 5000)  # before: not shown
        running.tell("pulse")
        monkeypatch.setattr("hakmem.heap.session.time", SimpleNamespace(sleep=wait))
        done = run("--start", "--seconds", "1.6", "--rate", "4096", running.pid, "--json")
        assert done.exit_code == 0 and waits == [(1.6, True)], done.output
        assert f"process {running.pid} takes a heap profile for 1.6 s, a sample every 4 KiB" in done.stderr
        (flat,) = (site["flat"] for site in json.loads(done.stdout)["sites"] if site["name"] == "keep_hay")
        # 5,000 blocks of 3,072 bytes, each a sample with a chance of 0.53: more than five standard deviations.
        assert 13e6 < flat["inuse_space"] < 18e6
        assert not Control(ProcessMemory(running.pid)).state().profile_on


def test_seconds_without_a_sample(running):
    running.tell("pulse")
    begun = time.monotonic()
    done = hakmem("heap", "--start", "--seconds", "0.2", "--rate", "1G", running.pid)
    assert time.monotonic() - begun > 0.2, "the command waits"
    assert done.status == 1 and (f"process {running.pid} allocated nothing in 0.2 s that became a sample, which are "
                                 "1 GiB apart"
                                 in done.stderr), done.report()
    assert not Control(ProcessMemory(running.pid)).state().profile_on


def test_a_thread_whose_calls_all_hit(running):
    """The tool sets its table of classes to 0. The library fills it again, with runs while calls are counted (T8)."""
    running.tell("spin")
    control = Control(ProcessMemory(running.pid))
    place = control.descriptor.fields["thread_cache.class_of"]

    def tables():
        return [control.memory.read(address + place.offset, place.count) for address in control.caches()]
    before = tables()
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


def test_an_idle_process_follows_with_its_next_call(running, monkeypatch):
    begun = hakmem("heap", "--start", running.pid)
    assert begun.status == 0 and begun.stdout == "" and (
        f"process {running.pid} has made no call of malloc or free in 3 s" in begun.stderr), begun.report()
    assert begun.stderr.endswith(f"; `hakmem heap --stop {running.pid}` takes it back\n")
    control = Control(ProcessMemory(running.pid))
    number = control.request(profile_mean=4096)
    with pytest.raises(Unanswered, match=rf"process {running.pid} has made no call of malloc or free in 0.5 s"):
        control.await_answer(number, seconds=0.5)
    assert not control.state().profile_on
    running.tell("keep", 64, 1)
    control.await_answer(number)
    assert control.state().profile_on


def test_it_ends_by_itself(running):
    """The profile ends by itself if the tool that would have ended it was killed."""
    control = Control(ProcessMemory(running.pid))
    number = control.request(profile_mean=4096, profile_ms=300)
    running.tell("keep", 5000, 100)
    control.await_answer(number)
    assert control.state().profile_on
    time.sleep(0.4)
    running.tell("keep", 5000, 100)
    assert not control.state().profile_on


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
    with pytest.raises(LiveError, match=r"nothing was written to it: .*the magic is not there"):
        Control(Altered(running.pid))
    sound = Control(ProcessMemory(running.pid)).descriptor

    def changed(**values):
        made = type(sound)(sound.address, sound.version, dict(sound.types), dict(sound.fields), dict(sound.constants),
                           dict(sound.roots))
        for name, value in values.items():
            getattr(made, name).update(value)
        return made

    for made, why in ((changed(roots={"outside": sound.roots["hak_window"]}),
                       "is not in the library's own data|the magic is not there"), (changed(roots={"outside": 0x1000}),
                                                                                    "nothing is mapped at 0x1000"),
                      (changed(constants={"OUTSIDE_ASKED": 9}), "its fields are others"),
                      (changed(fields={"outside.answered": sound.fields["outside.error"]}), "its fields are others")):
        with pytest.raises(LiveError, match=why):
            Control(ProcessMemory(running.pid), made)
    without = changed()
    del without.roots["outside"]
    with pytest.raises(LiveError, match="takes no requests from outside"):
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


def test_whose_process_it_is_not(running, library):
    script = (f"import os, sys; os.setgid(65534); os.setuid(65534); sys.path.insert(0, {ENVIRONMENT['PYTHONPATH']!r})\n"
              f"from hakmem.live.control import *\nProcessMemory({running.pid}).read(4096, 8)")
    done = blackbox.run([sys.executable, "-c", script])
    assert done.status == 1 and f"no permission to read process {running.pid}" in done.stderr, done.report()


@pytest.mark.parametrize("arguments,said", [
    (["--start", "--stop", "1"], "--start or --stop takes one PID"),
    (["--rate", "4K", "1"], "--rate goes with --start"),
    (["--start", "--rate", "many", "1"], "'many' is no number of bytes"),
    (["--start", "--rate", "2T", "1"], "'2T' is not from 1 to 1,099,511,627,776 bytes"),
    (["--seconds", "5", "1"], "--seconds goes with --start or --timeline"),
    (["--start", "1", "2"], "--start or --stop takes one PID"),
    (["--start", "--seconds", "9999", "1"], "--seconds"),
])
def test_wrong_use(arguments, said):
    done = hakmem("heap", *arguments)
    assert done.status == 2 and said in done.stderr, done.report()


def test_no_process():
    done = hakmem("heap", "--start", "999999999")
    assert done.status == 1 and "there is no process 999999999" in done.stderr, done.report()
