"""Protects exit statuses, the same in every tool: 1 for a failure, 2 for wrong use, a shell's for a program."""

import os
import subprocess
import sys

import checkout
import click.testing
import pytest

import blackbox
from hakmem.cli import main

OF_A_PROCESS = ("stats", "explain", "map", "doctor", "serve", "heap", "guard", "top --once", "advise",
                "analyze")
ALL = (*OF_A_PROCESS, "ps", "completion", "bench", "bench show", "bench report", "bench security", "compare",
       "peers", "peers list", "peers build", "trace info",
       "trace replay", "trace record", "run")
RUN_A_PROGRAM = ("run", "trace record")


def tool(*words):
    result = blackbox.run([sys.executable, "-m", "hakmem", *words], env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert "Traceback" not in result.stderr and not result.stdout, result.report()
    return result


def status_of(*words):
    """Runs in this process, for refusals that come before any action."""
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


@pytest.mark.parametrize(
    "arguments", [["peers", "path", "nonesuch"], ["peers", "build", "nonesuch"],
                  ["trace", "replay", "--rounds", "0", "x"], ["bench", "--rows", "nonesuch"], ["bench", "--rows", "("],
                  ["bench", "--name", "a/b"], ["compare", "--add", "x", "true"], ["completion", "csh"],
                  ["advise", "--try", "x", "--", "true"], ["advise", "--time", "0", "--", "true"],
                  ["advise", "--seconds", "nan", "1"], ["advise", "--time", "nan", "--", "true"],
                  ["advise", "--limit", "inf", "--", "true"], ["bench", "--time", "nan"], ["bench", "--scale", "inf"],
                  ["bench", "diff", "--time", "nan", "x"], ["bench", "curve", "--scale", "nan"],
                  ["compare", "--time", "nan", "--", "true"], ["explain", "--sites", "--idle", "nan", "1"],
                  ["heap", "--min", "nan", "1"], ["heap", "--seconds", "nan", "--start", "1"],
                  ["heap", "--timeline", "--every", "nan", "1"], ["serve", "--interval", "nan", "1"],
                  ["serve", "--deadline", "nan", "1"], ["top", "--interval", "nan", "--once", "1"],
                  ["trace", "replay", "--limit", "nan", "x"],])
def test_a_value_that_does_not_fit_is_2(arguments):
    assert status_of(*arguments) == 2


@pytest.mark.parametrize("address", ["https://[::1", "http://user:secret@[x?token=secret", "http://", "http://a b/"])
def test_an_address_that_is_none_is_1(address):
    done = click.testing.CliRunner().invoke(main, ["heap", address])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert "secret" not in done.output


def test_a_step_that_fails_ends_the_script_with_1(tmp_path):
    """Whatever the status of the failed command itself."""
    script = checkout.make(tmp_path / "checkout")
    cmake = tmp_path / "bin/cmake"
    cmake.parent.mkdir()
    cmake.write_text("#!/bin/sh\necho broken\nexit 7\n")
    cmake.chmod(0o755)
    result = blackbox.run([script, "build"], env=checkout.environment(PATH=f"{cmake.parent}:{os.environ['PATH']}"))
    assert result.status == 1 and "(7): cmake " in result.stderr and "broken" in result.stderr, result.report()


@pytest.mark.parametrize("words", [
    ["heap", "--html", "", "x"], ["heap", "--symbolized", "", "x"], ["map", "-o", "", "1"], ["top", "--svg", "", "1"],
    ["serve", "--token-file", "", "1"], ["serve", "--socket", "", "1"], ["leaks", "--json", "", "--", "true"],
    ["trace", "info", ""], ["trace", "record", "-o", "", "--", "true"], ["bench", "show", ""], ["bench", "report", ""]])
def test_an_empty_word_names_no_file(words):
    """As from a shell's variable that is not set. A path of "" would be the present folder."""
    done = click.testing.CliRunner().invoke(main, words)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.output


def test_a_command_that_is_spelled_wrong():
    for word, meant in (("doktor", "doctor"), ("xyzzy", "")):
        done = click.testing.CliRunner().invoke(main, [word, "1"])
        assert done.exit_code == 2 and word in done.output and meant in done.output, done.output
