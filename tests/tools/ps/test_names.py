"""Protects names in place of PIDs: what they mean, and the messages for no match and for several."""

import json
import os
import subprocess

import click.testing
import pytest
from conftest import hakmem

import blackbox
from hakmem import processes
from hakmem.cli import main
from hakmem.processes import Process, bearers, matches


def here(*arguments):
    """Runs the command in this process, for refusals."""
    return click.testing.CliRunner().invoke(main, [str(argument) for argument in arguments])


def pid_of(*arguments, **more):
    result = hakmem("stats", "--json", *arguments, **more)
    assert result.status == 0, result.report()
    return json.loads(result.stdout)["pid"]


@pytest.mark.parametrize("name", ["haknamed", "hak named", "hak-a-name-longer-than-15",
                                  "hak\u00e4-named-longer-than-15"])
def test_the_name_of_a_program(waiting, library, name):
    process = waiting(name, library)
    assert pid_of(name) == process.pid


def test_the_name_that_a_process_has_by_its_first_word(waiting, library):
    process = waiting("hakfile", library, argv0="/opt/haktitle: worker process")
    assert pid_of("haktitle") == pid_of("hakfile") == process.pid


def test_a_part_of_the_command_line(waiting, library):
    process = waiting("hakpart", library, ["--port=61379"])
    result = hakmem("stats", "port=61379")
    assert result.status == 0 and str(process.pid) in result.stdout, result.report()
    assert f"hakmem: 'port=61379' is process {process.pid}: " in result.stderr


def test_a_script_by_its_own_name(tmp_path, library):
    script = tmp_path / "hakscript.py"
    script.write_text("print('ready', flush=True)\ninput()\n")
    process = subprocess.Popen(["python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=blackbox.environment(None, library))
    try:
        assert process.stdout.readline() == "ready\n"
        assert pid_of("hakscript.py") == process.pid
    finally:
        process.communicate("\n")


def test_several_are_a_list_and_2(waiting, library):
    first, second = waiting("hakmany", library), waiting("hakmany", library)
    for command in ("stats", "explain", "map", "doctor", "advise"):
        result = here(command, "hakmany")
        assert result.exit_code == 2 and not result.stdout, result.output
        assert "'hakmany' means 2 processes; give the PID of one:" in result.stderr
        assert f"  {first.pid}  " in result.stderr and f"  {second.pid}  " in result.stderr


def test_the_one_on_hakmem_is_meant(waiting, library):
    """For a command about processes on HAKMEM. doctor accepts any process."""
    waiting("hakone")
    process = waiting("hakone", library)
    assert pid_of("hakone") == process.pid
    assert here("doctor", "hakone").exit_code == 2


@pytest.mark.parametrize("command",
                         ["stats", "explain", "map", "doctor", "advise", "serve", "top --once", "heap", "guard"])
def test_no_such_name_is_1(command):
    result = here(*command.split(), "hakmem-no-such-name")
    assert result.exit_code == 1 and not result.stdout, result.output
    assert "hakmem-no-such-name" in result.stderr


@pytest.mark.parametrize("word, message", [
    ("", "a PID or the name of a process is wanted"), ("0", "not in the range"), ("-3", "not in the range")])
def test_what_can_be_neither_is_2(word, message):
    result = here("stats", "--", word)
    assert result.exit_code == 2 and message in result.stderr, result.output


def test_every_command_takes_a_name(waiting, library, tmp_path):
    process = waiting("hakevery", library)
    for command, status in (("explain", 0), ("top --once --interval 0.1", 0), ("doctor", (0, 1)), ("heap", 1)):
        result = hakmem(*command.split(), "hakevery")
        assert result.status in (status if isinstance(status, tuple) else (status,)), result.report()
        assert str(process.pid) in result.stdout + result.stderr
    drawn = hakmem("map", "hakevery", "-o", tmp_path / "map.html")
    assert drawn.status == 0 and str(process.pid) in (tmp_path / "map.html").read_text()


def test_a_file_comes_before_a_process(waiting, library, tmp_path):
    waiting("hakheap", library)
    (tmp_path / "hakheap").touch()
    result = hakmem("heap", "hakheap", cwd=tmp_path)
    assert result.status == 1 and "hakheap: " in result.stderr and "takes no heap profile" not in result.stderr


def test_neither_this_process_nor_a_thread_of_the_kernel(monkeypatch):
    assert "kthreadd" not in {process.name for process in processes.all_processes()}
    own = Process(os.getpid(), os.getppid(), "haktool", ("haktool",), "haktool")
    shell = Process(os.getppid(), 1, "sh", ("sh", "-c", "hakmem stats wanted"), "sh")
    other = Process(999999, 1, "x", ("x", "wanted thing"), "x")
    assert bearers("haktool", [own]) == []
    assert matches("wanted", [own, shell, other]) == [other]
    assert matches("sh", [shell, other]) == [shell]
