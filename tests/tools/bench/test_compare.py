"""Protects hakmem compare: a user's program on each allocator."""

import json
import os
import signal
from pathlib import Path

import blackbox
import pytest
import tool

AT_START = Path(__file__).with_name("at_start.c")
# A program whose start of this number waits until it is ended. It adds a line to a file at each start.
GATE = 'echo >> "$0"; test $(wc -l < "$0") -ne "$1" || sleep 3600'


def compare(folder, *arguments):
    return tool.run(folder, "compare", "--warm", 1, *arguments)


def result_of(folder, *arguments):
    done = compare(folder, "--json", "--no-calls", *tool.TWO, *arguments)
    assert done.status == 0, done.report()
    return json.loads(done.stdout)


def test_figures_of_a_known_program(compiled, tmp_path):
    """It holds 32 MiB for 0.3 s. System calls are counted, and the tables name each allocator."""
    hold = compiled(Path(__file__).with_name("hold.c"), "-pthread")
    done = compare(tmp_path, *tool.TWO, "--rounds", 2, "--json", "--", hold, 32, 300, 0)
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    for entry in result["summary"]["rows"]["program"].values():
        assert entry["time_s"] >= 0.3
        assert 32 * 1024 <= entry["peak_rss_kib"] < 40 * 1024
        assert 0 < entry["mean_rss_kib"] <= entry["peak_rss_kib"]
        assert entry["soft_faults"] > 32 * 16
    assert all(entry["memory_total"] > 2 for entry in result["calls"])
    assert result["rows"]["program"]["command"].endswith(" 32 300 0")


def test_the_table(compiled, tmp_path):
    """A row for each allocator, and for what crashed or ended with a status."""
    crash, status = (compiled(AT_START, f"-DMODE={mode}", shared=True) for mode in (1, 2))
    done = compare(tmp_path, *tool.TWO, "--rounds", 2, "--no-calls", "--add", f"bad={crash}", "--add", f"odd={status}",
                   "--", "true")
    assert done.status == 0, done.report()
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert {"glibc", "hakmem", "hakmem-again", "bad", "odd"} <= set(rows), done.report()
    assert "SIGSEGV" in rows["bad"] and "exit status 9" in rows["odd"]


@pytest.mark.parametrize("script, detail", [("echo no luck >&2; exit 5", "exit status 5"), ("kill -ABRT $$", "SIGABRT"),
                                            ("sleep 60", "0.2 s")])
def test_a_program_that_fails_everywhere(tmp_path, script, detail):
    """No allocator is the fastest at failing."""
    done = compare(tmp_path, *tool.TWO, "--rounds", 2, "--no-calls", "--limit", "0.2", "--json", "--", "sh", "-c",
                   script)
    assert done.status == 1, done.report()
    assert detail in done.stderr and "Traceback" not in done.stderr, done.report()
    result = json.loads(done.stdout)
    assert result["verdict"] == {} and {s["status"] for s in result["samples"]} & {"ok"} == set()
    if "exit" in script:
        assert "no luck" in done.stderr and "--status 5" in done.stderr


def test_the_exit_status_and_the_variables_that_are_expected(monkeypatch, tmp_path):
    monkeypatch.setenv("USERS_OWN", "2")
    script = 'test "$MORE $USERS_OWN $1" = "x 2 {files}" && exit 3'
    result = result_of(tmp_path, "--rounds", 1, "--status", 3, "--env", "MORE=x", "--", "sh", "-c", script, "sh",
                       "{files}")
    assert {(s["status"], s["exit"]) for s in result["samples"]} == {("ok", 3)}


def test_input_and_output(tmp_path):
    text = tmp_path / "text"
    text.write_text("one\ntwo\n")
    words = ("compare", "--warm", 1, *tool.TWO, "--rounds", 1, "--no-calls")
    program = ("--", "sh", "-c", "cat; echo said >&2")
    done = tool.run(tmp_path, *words, *program)
    assert "two\n" not in done.stdout and "said" not in done.stderr
    done = tool.run(tmp_path, *words, "--show-output", "--input", text, *program)
    assert done.stdout.count("one\ntwo\n") == 3
    assert done.stderr.count("said\n") == 3


@pytest.mark.parametrize("arguments, status, word", [
    (["--", "nosuchprogram"], 1, "'nosuchprogram'"),
    (["--", "/etc/passwd"], 1, "/etc/passwd"),
    (["--", tool.LAUNCHER], 1, str(tool.LAUNCHER)),
    ([], 2, "PROGRAM"),
    (["--input", "/no/such/file", "--", "true"], 2, "/no/such/file"),
    (["--allocators", "hakmem,nosuch", "--", "true"], 2, "nosuch"),
    (["--rounds", "x", "--", "true"], 2, "--rounds"),
])
def test_mistakes_are_named(tmp_path, arguments, status, word):
    found, said = tool.refused(tmp_path, "compare", "--warm", 1, *arguments)
    assert found == status and word in said, said


def test_what_is_installed_is_compared(monkeypatch, tmp_path):
    """Libraries of the system are compared without an option. A message names them, and how to get others."""
    from hakmem.bench import allocators

    done = compare(tmp_path, "--rounds", 1, "--no-calls", "--json", "--", "true")
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    names = set(result["allocators"])
    monkeypatch.setenv("HAKMEM_PEERS_DIR", str(tmp_path / "peers"))
    monkeypatch.setenv("HAKMEM_BUILD_DIR", str(tool.BUILD))
    assert names == {*allocators.known(installed=True)[0], "hakmem-again"} >= {"glibc", "hakmem"}
    assert {s["status"] for s in result["samples"]} == {"ok"}
    assert all(name in done.stderr for name in names - {"hakmem-again"}) and "--add NAME=LIBRARY" in done.stderr


def test_an_interrupt_leaves_what_there_is_and_resume_goes_on(tmp_path):
    """Another run of the same command at that time keeps nothing, and does not disturb the first."""
    starts = tmp_path / "starts"
    options, command = ("--no-calls", *tool.TWO, "--rounds", 6), ("--", "sh", "-c", GATE, starts, "5")
    process = tool.start(tmp_path, "compare", "--warm", 1, *options, *command)
    blackbox.wait_for(lambda: starts.exists() and len(starts.read_text()) == 5, "the run that waits")
    assert compare(tmp_path, "--no-calls", *tool.TWO, "--rounds", 1, *command).status == 0
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=blackbox.HANG)
    assert process.returncode == 130 and "Traceback" not in err and "--resume" in err, err
    assert "hakmem" in out
    status, said = tool.refused(tmp_path, "compare", "--warm", 1, *options, "--env", "A=b", "--resume", *command)
    assert status == 1 and "conditions.env" in said, said
    result = json.loads(compare(tmp_path, *options, "--json", "--resume", *command).stdout)
    assert sorted(s["round"] for s in result["samples"] if s["allocator"] == "glibc") == list(range(6))
    assert tool.refused(tmp_path, "compare", "--warm", 1, *options, "--resume", *command)[0] == 1
    assert list((tmp_path / "state").iterdir()) == []


def test_an_interrupt_before_anything_is_known(tmp_path):
    starts = tmp_path / "starts"
    process = tool.start(tmp_path, "compare", "--warm", 1, "--no-calls", *tool.TWO, "--", "sh", "-c", GATE, starts, "1")
    blackbox.wait_for(starts.exists, "the first run")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=blackbox.HANG)
    assert (process.returncode, out) == (130, "") and "Traceback" not in err, err


def test_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "state").write_text("a file where a folder is wanted\n")
    done = compare(tmp_path, "--no-calls", *tool.TWO, "--rounds", 1, "--", "true")
    assert done.status == 0, done.report()
    status, said = tool.refused(tmp_path, "compare", "--no-calls", *tool.TWO, "--resume", "--", "true")
    assert status == 1 and str(tmp_path / "state") in said
