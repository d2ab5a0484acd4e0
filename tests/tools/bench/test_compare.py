"""Protects hakmem compare: a user's program on each allocator."""

import json
import os
import re
import signal
import time
from pathlib import Path

import blackbox
import pytest
import tool

AT_START = Path(__file__).with_name("at_start.c")


def compare(folder, *arguments):
    return tool.run(folder, "compare", "--warm", 1, *arguments)


def result_of(folder, *arguments):
    done = compare(folder, "--json", "--no-calls", *tool.TWO, *arguments)
    assert done.status == 0, done.report()
    return json.loads(done.stdout)


def test_a_program_is_compared(tmp_path):
    done = compare(tmp_path, *tool.TWO, "--rounds", 3, "--", "perl", "-e", 'my @a = map { "x" x $_ } 1..3000;')
    assert done.status == 0, done.report()
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Fastest: ") and lines[1].startswith("Smallest: ")
    table = {line.split()[0]: line.split() for line in lines if line.startswith(("glibc ", "hakmem ", "hakmem-again "))}
    assert set(table) == {"glibc", "hakmem", "hakmem-again"}
    assert "medians of 3 rounds" in done.stdout
    assert "memory calls" in done.stdout


def test_figures_of_a_known_program(compiled, tmp_path):
    hold = compiled(Path(__file__).with_name("hold.c"), "-pthread")
    result = result_of(tmp_path, "--rounds", 2, "--", hold, 32, 300, 0)
    entries = result["summary"]["rows"]["program"].values()
    assert 0.3 <= min(entry["time_s"] for entry in entries) < 1
    for entry in entries:
        assert 32 * 1024 <= entry["peak_rss_kib"] < 40 * 1024
        assert 0.7 * 32 * 1024 < entry["mean_rss_kib"] < 40 * 1024
        assert entry["soft_faults"] > 32 * 16
    assert result["rows"]["program"]["command"].endswith(" 32 300 0")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_program_that_fails_everywhere(tmp_path, form):
    """No allocator is the fastest at failing."""
    done = compare(tmp_path, *tool.TWO, "--rounds", 3, "--no-calls", *form, "--", "sh", "-c",
                   "echo no luck >&2; exit 5")
    assert done.status == 1, done.report()
    assert "Fastest" not in done.stdout and "Smallest" not in done.stdout
    assert "Error: no allocator completed its runs of sh; on glibc it ended so: exit status 5: no luck\n" in done.stderr
    assert "--status 5" in done.stderr
    assert "exit status 5" in done.stdout


def test_the_exit_status_that_is_expected(tmp_path):
    result = result_of(tmp_path, "--rounds", 2, "--status", 3, "--", "sh", "-c", "exit 3")
    assert {s["status"] for s in result["samples"]} == {"ok"}
    assert {s["exit"] for s in result["samples"]} == {3}


def test_another_status_or_a_crash_is_shown(compiled, tmp_path):
    crash, status = (compiled(AT_START, f"-DMODE={mode}", shared=True) for mode in (1, 2))
    done = compare(tmp_path, *tool.TWO, "--rounds", 3, "--no-calls", "--add", f"bad={crash}", "--add", f"odd={status}",
                   "--", "true")
    assert done.status == 0, done.report()
    assert "crashed (SIGSEGV)" in done.stdout
    assert "failed (exit status 9)" in done.stdout
    assert done.stdout.splitlines()[0].startswith("Fastest: ")


def test_a_program_that_always_crashes(tmp_path):
    done = compare(tmp_path, *tool.TWO, "--rounds", 2, "--no-calls", "--", "sh", "-c", "kill -ABRT $$")
    assert done.status == 1
    assert "crashed (SIGABRT)" in done.stdout
    assert "no allocator completed" in done.stderr


def test_input_and_output(tmp_path):
    text = tmp_path / "text"
    text.write_text("one\ntwo\n")
    script = "cat; echo said >&2"
    done = compare(tmp_path, *tool.TWO, "--rounds", 1, "--no-calls", "--", "sh", "-c", script)
    assert "two\n" not in done.stdout and "said" not in done.stderr
    done = compare(tmp_path, *tool.TWO, "--rounds", 1, "--no-calls", "--show-output", "--input", text, "--", "sh", "-c",
                   script)
    assert done.stdout.count("one\ntwo\n") == 3
    assert done.stderr.count("said\n") == 3


def test_the_users_variables_and_words_stay(monkeypatch, tmp_path):
    monkeypatch.setenv("USERS_OWN", "2")
    script = 'test "$MORE $USERS_OWN $1" = "x 2 {files}"'
    result = result_of(tmp_path, "--rounds", 1, "--env", "MORE=x", "--", "sh", "-c", script, "sh", "{files}")
    assert {s["exit"] for s in result["samples"]} == {0}


def test_the_limit(tmp_path):
    done = compare(tmp_path, *tool.TWO, "--rounds", 3, "--no-calls", "--limit", "0.2", "--", "sleep", "60")
    assert done.status == 1
    assert "too long (no end after 0.2 s)" in done.stdout


def test_the_time_is_kept(tmp_path):
    """Three seconds, which have room for at most five rounds of three."""
    result = result_of(tmp_path, "--time", "0.05", "--", "sleep", "0.2")
    rounds = {s["round"] for s in result["samples"]}
    assert 2 <= len(rounds) <= 5


@pytest.mark.parametrize("arguments, message", [
    (["--", "nosuchprogram"], "program 'nosuchprogram' not found"),
    (["--", "/etc/passwd"], "/etc/passwd' is not a program"),
    (["--", tool.LAUNCHER], "is linked statically and loads no library"),
    ([], "Missing argument"),
    (["--input", "/no/such/file", "--", "true"], "/no/such/file"),
    (["--allocators", "hakmem,nosuch", "--", "true"], "no such allocator: nosuch"),
    (["--rounds", "x", "--", "true"], "'x' is not a valid integer"),
])
def test_mistakes_are_named(tmp_path, arguments, message):
    done = compare(tmp_path, *arguments)
    assert done.status != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_installed_is_compared(tmp_path):
    """Debian's libraries are compared without an option. A missing one is named with the way to install it."""
    done = compare(tmp_path, "--rounds", 1, "--no-calls", "--json", "--", "true")
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    names = set(result["allocators"])
    assert {"glibc", "hakmem", "hakmem-again", "jemalloc", "gperftools", "tbb"} <= names
    assert result["allocators"]["jemalloc"]["source"] == "package libjemalloc2"
    assert {s["status"] for s in result["samples"]} == {"ok"}
    assert "hakmem: compared are glibc 2." in done.stderr and "jemalloc 5." in done.stderr
    assert "--add NAME=LIBRARY takes any other" in done.stderr
    assert "mimalloc" in names or "apt-get install libmimalloc" in done.stderr


def stopped(folder, *arguments, rounds=1):
    """Runs compare, and interrupts it in the round after `rounds` rounds."""
    process = tool.start(folder, "compare", "--warm", 1, "--no-calls", *tool.TWO, *arguments)
    for number in range(1, rounds + 1):
        line = process.stderr.readline()
        assert f"round {number} in" in line, line + process.stderr.read()
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=blackbox.HANG)
    return process.returncode, out, err


def test_an_interrupt_leaves_what_there_is_and_resume_goes_on(tmp_path):
    command = ("--rounds", 6, "--", "sleep", "0.2")
    status, out, err = stopped(tmp_path, *command)
    assert status == 130 and "Traceback" not in err
    # One round, or more on a busy machine.
    assert re.search("stopped after [1-5] whole rounds?; the same command with --resume goes on", err), err
    assert re.search("medians of [1-5] rounds?;", out), out
    assert re.search("Verdict: No verdict on time: [1-5] rounds? (is|are) too few", out), out
    result = json.loads(compare(tmp_path, "--no-calls", *tool.TWO, "--json", "--resume", *command).stdout)
    assert sorted(s["round"] for s in result["samples"] if s["allocator"] == "glibc") == list(range(6))
    again = compare(tmp_path, "--no-calls", *tool.TWO, "--resume", *command)
    assert again.status == 1 and "there is no run of this command to resume" in again.stderr
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_what_differs_is_not_resumed(tmp_path):
    stopped(tmp_path, "--rounds", 20, "--", "sleep", "0.2")
    done = compare(tmp_path, "--no-calls", *tool.TWO, "--rounds", 20, "--env", "A=b", "--resume", "--", "sleep", "0.2")
    assert done.status == 1 and "cannot resume" in done.stderr and "conditions.env" in done.stderr, done.report()
    done = compare(tmp_path, "--no-calls", *tool.TWO, "--rounds", 1, "--", "sleep", "0.2")
    assert done.status == 0 and "is forgotten now" in done.stderr


def test_an_interrupt_before_anything_is_known(tmp_path):
    process = tool.start(tmp_path, "compare", "--warm", 1, "--no-calls", *tool.TWO, "--", "sleep", "600")
    deadline = time.monotonic() + blackbox.HANG
    while not list((tmp_path / "state").rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=blackbox.HANG)
    assert (process.returncode, out) == (130, "") and "stopped after 0 whole rounds" in err, err


def test_two_at_once(tmp_path):
    """The second keeps nothing, says so, and does not disturb the first."""
    first = tool.start(tmp_path, "compare", "--warm", 1, "--no-calls", *tool.TWO, "--rounds", 500, "--", "sleep", "0.1")
    assert "round 1" in first.stderr.readline()
    status, _, err = stopped(tmp_path, "--rounds", 500, "--", "sleep", "0.1")
    assert status == 130 and "cannot be resumed: another run of the same command is going on" in err
    os.kill(first.pid, signal.SIGINT)
    _, err = first.communicate(timeout=blackbox.HANG)
    assert first.returncode == 130 and "the same command with --resume goes on" in err


def test_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "state").write_text("a file where a folder is wanted\n")
    done = compare(tmp_path, "--no-calls", *tool.TWO, "--rounds", 1, "--", "true")
    assert done.status == 0, done.report()
    assert "no run can be resumed: " in compare(tmp_path, "--no-calls", *tool.TWO, "--resume", "--", "true").stderr
