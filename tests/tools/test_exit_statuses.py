"""The same error ends every tool with the same status: 1 where it fails, 2 for bad use, a shell's for a program."""

import os
import subprocess
import sys

import checkout
import click.testing
import pytest

import blackbox
from hakmem.cli import main

OF_A_PROCESS = ("stats", "explain", "map", "doctor", "serve", "heap", "top --once")
ALL = (*OF_A_PROCESS, "bench", "bench show", "bench report", "compare", "peers", "peers list", "peers build", "trace info",
       "trace replay", "trace record", "run")
RUN_A_PROGRAM = ("run", "trace record")


def tool(*words):
    result = blackbox.run([sys.executable, "-m", "hakmem", *words], env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert "Traceback" not in result.stderr and not result.stdout, result.report()
    return result


def status_of(*words):
    """Here, without a process of its own, for what is refused before anything is done."""
    return click.testing.CliRunner().invoke(main, words).exit_code


@pytest.mark.parametrize("command", OF_A_PROCESS)
def test_no_such_process_is_1(command):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert tool(*command.split(), str(gone.pid)).status == 1


@pytest.mark.parametrize("command", ALL)
def test_an_unknown_option_is_2(command):
    assert status_of(*command.split(), "--nonesuch") == 2


@pytest.mark.parametrize("command", RUN_A_PROGRAM)
@pytest.mark.parametrize("program, status", [("hakmem-no-such-program", 127), ("/tmp", 126)])
def test_a_program_that_cannot_be_run(command, program, status):
    assert tool(*command.split(), "--", program).status == status


@pytest.mark.parametrize("arguments", [
    ["peers", "path", "nonesuch"], ["peers", "build", "nonesuch"], ["trace", "replay", "--rounds", "0", "x"],
    ["bench", "--rows", "nonesuch"], ["bench", "--rows", "("], ["bench", "--name", "a/b"], ["compare", "--add", "x", "true"],
])
def test_a_value_that_does_not_fit_is_2(arguments):
    assert status_of(*arguments) == 2


def test_a_step_that_fails_ends_the_script_with_1(tmp_path):
    """Whatever the failed command itself ended with."""
    script = checkout.make(tmp_path / "checkout")
    cmake = tmp_path / "bin/cmake"
    cmake.parent.mkdir()
    cmake.write_text("#!/bin/sh\necho broken\nexit 7\n")
    cmake.chmod(0o755)
    result = blackbox.run([script, "build"], env=checkout.environment(PATH=f"{cmake.parent}:{os.environ['PATH']}"))
    assert result.status == 1 and "broken\nhakmem: failed (7): cmake " in result.stderr, result.report()
