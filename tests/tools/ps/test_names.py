"""Protects names in place of PIDs: what they mean, and the errors for no match and for several."""

import json
import os
import subprocess

import blackbox
from conftest import own
from inprocess import hakmem

from hakmem.processes import Process, all_processes, bearers, matches


def pid_of(*arguments):
    result = hakmem("stats", "--json", *arguments)
    assert result.status == 0, result.report()
    return json.loads(result.stdout)["pid"]


def test_the_name_of_a_program(waiting, library):
    for name in map(own, ("named", " named", "-a-name-longer-than-15", "\u00e4-named-longer-than-15")):
        process = waiting(name, library)
        assert pid_of(name) == process.pid


def test_the_name_that_a_process_has_by_its_first_word(waiting, library):
    process = waiting(own("file"), library, argv0=f"/opt/{own('title')}: worker process")
    assert pid_of(own("title")) == pid_of(own("file")) == process.pid


def test_a_part_of_the_command_line(waiting, library):
    process = waiting(own("part"), library, [f"--port={own('61379')}"])
    result = hakmem("stats", f"port={own('61379')}")
    assert result.status == 0 and str(process.pid) in result.stdout, result.report()
    assert f"'port={own('61379')}'" in result.stderr and str(process.pid) in result.stderr


def test_a_script_by_its_own_name(tmp_path, library):
    script = tmp_path / own("script.py")
    script.write_text("print('ready', flush=True)\ninput()\n")
    process = subprocess.Popen(["python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=blackbox.environment(None, library))
    try:
        assert process.stdout.readline() == "ready\n"
        assert pid_of(own("script.py")) == process.pid
    finally:
        process.communicate("\n")


def test_several_are_a_list_and_2(waiting, library):
    first, second = waiting(own("many"), library), waiting(own("many"), library)
    for command in ("stats", "explain", "map", "doctor", "advise"):
        hakmem(command, own("many")).says(2, own("many"), first.pid, second.pid)


def test_the_one_on_hakmem_is_meant(waiting, library):
    """For a command about processes on HAKMEM. doctor accepts any process."""
    waiting(own("one"))
    process = waiting(own("one"), library)
    assert pid_of(own("one")) == process.pid
    assert hakmem("doctor", own("one")).status == 2


def test_no_such_name_is_1():
    for command in ("stats", "explain", "map", "doctor", "advise", "serve", "top --once", "heap", "guard"):
        hakmem(*command.split(), "hakmem-no-such-name").says(1, "hakmem-no-such-name")
    for word in ("", "0", "-3"):
        hakmem("stats", "--", word).says(2, "PID")


def test_every_command_takes_a_name(waiting, library, tmp_path):
    process = waiting(own("every"), library)
    for command, statuses in (("explain", (0,)), ("top --once --interval 0.1", (0,)), ("doctor", (0, 1)),
                              ("heap", (1,))):
        result = hakmem(*command.split(), own("every"))
        assert result.status in statuses, result.report()
        assert str(process.pid) in result.stdout + result.stderr
    drawn = hakmem("map", own("every"), "-o", tmp_path / "map.html")
    assert drawn.status == 0 and str(process.pid) in (tmp_path / "map.html").read_text()


def test_a_profile_comes_before_a_process(waiting, library, tmp_path, monkeypatch):
    process = waiting(own("heap"), library)
    (tmp_path / "there").mkdir()
    file = tmp_path / "there" / own("heap")
    monkeypatch.chdir(file.parent)
    file.touch()  # such as the program itself
    hakmem("heap", file.name).says(1, str(process.pid))
    file.write_bytes(b"\x1f\x8b")  # a profile that was cut off
    result = hakmem("heap", file.name)
    result.says(1, file.name)
    assert str(process.pid) not in result.stderr


def test_neither_this_process_nor_a_thread_of_the_kernel():
    assert "kthreadd" not in {process.name for process in all_processes()}
    own = Process(os.getpid(), os.getppid(), "haktool", ("haktool",), "haktool")
    shell = Process(os.getppid(), 1, "sh", ("sh", "-c", "hakmem stats wanted"), "sh")
    other = Process(999999, 1, "x", ("x", "wanted thing"), "x")
    assert bearers("haktool", [own]) == []
    assert matches("wanted", [own, shell, other]) == [other]
    assert matches("sh", [shell, other]) == [shell]
