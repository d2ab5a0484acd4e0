"""Protects `hakmem ps`: the listed processes, their figures, and what could not be read."""

import json
import os
import signal
import subprocess
import sys
import time

import blackbox
import pytest
from conftest import ENVIRONMENT, WAITS, own
from inprocess import as_nobody, hakmem

from hakmem.processes import all_processes, read_one
from hakmem.ps import survey


def listed(command=hakmem):
    result = command("ps", "--json")
    assert result.status == 0, result.report()
    found = json.loads(result.stdout)
    return {row["pid"]: row for row in found["processes"]}, found["unseen"]


def test_processes_on_hakmem_and_no_others(waiting, library):
    on, off = waiting("hakps on", library), waiting("hakps-off")
    listed()  # a reader may bring pages of its target into memory
    rows, _ = listed()
    row = rows[on.pid]
    with open(f"/proc/{on.pid}/statm", encoding="ascii") as file:
        assert row["rss"] == int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert off.pid not in rows
    stats = json.loads(hakmem("stats", on.pid, "--json").stdout)
    assert (row["name"], row["problem"]) == ("hakps on", "")
    assert row["live"] == stats["totals"]["live"] and row["version"] == stats["version"]
    assert row["reclaimable"] == max(0, stats["totals"]["retained"] - stats["totals"]["purged"])


def test_a_program_that_is_linked_with_it(compiled, override_archive):
    program = compiled(WAITS, str(override_archive), "-static")
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=blackbox.environment())
    try:
        assert process.stdout.readline() == "ready\n"
        assert process.pid in listed()[0]
    finally:
        process.communicate()


def test_as_a_table(waiting, library):
    """A process's name cannot control the terminal."""
    process = waiting("hakps-\x1b[1m", library, ["a\nword\x1b[31m)"])
    result = hakmem("ps")
    (line,) = [line for line in result.stdout.splitlines() if line.split()[0] == str(process.pid)]
    assert "hakps-\ufffd[1m" in line and "KiB" in line and line.endswith(
        "a\ufffdword\ufffd[31m)") and "\x1b" not in result.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_another_users_process_is_counted_and_not_shown(waiting, library):
    process = waiting("hakps-root", library)
    assert process.pid in listed()[0]
    rows, unseen = listed(as_nobody)
    assert process.pid not in rows and unseen >= 1


def test_a_process_that_ends_meanwhile(waiting, library, monkeypatch):
    process = waiting("hakps-ends", library)
    seen = read_one(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    monkeypatch.setattr(survey, "all_processes", lambda: [seen])
    assert survey.survey() == survey.Survey([], 0)


def test_a_process_that_ends_while_its_heap_is_read(waiting, library, monkeypatch):
    process = waiting("hakps-ends", library)
    seen, real = read_one(process.pid), survey.snapshot

    def kill_first(memory, descriptor):
        # Runs in a child of this process, which cannot wait for another child.
        os.kill(process.pid, signal.SIGKILL)
        while read_one(process.pid) is not None:
            time.sleep(0.01)
        return real(memory, descriptor)

    monkeypatch.setattr(survey, "all_processes", lambda: [seen])
    monkeypatch.setattr(survey, "snapshot", kill_first)
    assert survey.survey() == survey.Survey([], 0)


def test_a_zombie_is_no_process(waiting, library):
    process = waiting(own("zombie"), library)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.pid not in {each.pid for each in all_processes()}
    assert process.pid not in listed()[0]
    hakmem("stats", own("zombie")).says(1, own("zombie"))


def test_a_process_in_a_namespace_of_its_own(compiled, tmp_path, library):
    """From outside it has its outer number. From inside, only the namespace's processes are visible."""
    if blackbox.run(["unshare", "-pf", "--mount-proc", "true"]).status != 0:
        pytest.skip("unshare --pid --mount-proc is not permitted here")
    program, fifo, said = compiled(WAITS), tmp_path / "held", tmp_path / "said"
    inside = (f'LD_PRELOAD="{library}" "{program}" < "$1" > "$2" & read line < "$2"; echo "$line"; '
              f'"{sys.executable}" -m hakmem ps --json; echo; echo end; cat')
    os.mkfifo(fifo)
    os.mkfifo(said)
    process = subprocess.Popen(["unshare", "-pf", "--mount-proc", "sh", "-c", inside, "sh", fifo, said],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=blackbox.environment(ENVIRONMENT), start_new_session=True)
    try:
        with open(fifo, "w", encoding="ascii"):
            assert process.stdout.readline() == "ready\n"
            text = "".join(iter(process.stdout.readline, "end\n"))
            (row,) = json.loads(text)["processes"]
            assert row["pid"] < 10 and row["live"] > 0
            rows, _ = listed()
            assert [each["live"] for each in rows.values() if each["command"] == row["command"]] == [row["live"]]
    finally:
        blackbox.stop_session(process)
        process.communicate()


def test_nothing_to_list(monkeypatch):
    monkeypatch.setattr(survey, "all_processes", lambda: [])
    assert listed() == ({}, 0) and hakmem("ps").status == 0
