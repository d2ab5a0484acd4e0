"""Protects hakmem bench, from the command line to the files."""

import csv
import json
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import blackbox
import pytest
import tool

AT_START = Path(__file__).with_name("at_start.c")
SMALL = ("--scale", "0.002", "--rows", "^random-mixed-256$")
ANSI = "\x1b"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(folder, the output) of a run of two rows in two rounds. An unfinished run of its name was there."""
    folder = tmp_path_factory.mktemp("measured")
    journal = folder / ".running/small.jsonl"
    journal.parent.mkdir()
    journal.write_text("an old one\n")
    done = tool.bench(folder, *tool.TWO, *SMALL, "--rows", "^spawn-true$", "--rounds", 2, "--name", "small")
    assert done.status == 0, done.report()
    assert journal.with_name("small.jsonl.old").read_text() == "an old one\n"
    return folder, done


def test_results_are_written(measured):
    folder, done = measured
    result = tool.only_result(folder)
    assert result["format"] == "hakmem-bench 1"
    assert list(result["allocators"]) == ["glibc", "hakmem", "hakmem-again"]
    assert result["allocators"]["hakmem"]["sha256"] == result["allocators"]["hakmem-again"]["sha256"]
    assert result["allocators"]["hakmem"]["library"] != result["allocators"]["hakmem-again"]["library"]
    assert result["rows"]["random-mixed-256"]["command"] == "bench_random_mixed 40000 256 42"
    order = [(s["row"], s["round"], s["allocator"]) for s in result["samples"]]
    names = ["glibc", "hakmem", "hakmem-again"]
    assert order == [(row, number, name) for number in range(2) for place, row in enumerate(result["rows"])
                     for name in names[(number + place) % 3:] + names[:(number + place) % 3]]
    for sample in result["samples"]:
        assert sample["status"] == "ok"
        assert sample["peak_rss_kib"] > 500
        assert sample["wall_s"] >= sample["time_s"] > 0
    driver = [sample for sample in result["samples"] if sample["row"] == "random-mixed-256"]
    assert {sample["ops"] for sample in driver} == {40000}
    assert set(result["summary"]["overall"]) == {"glibc", "hakmem-again"}
    (table,) = folder.glob("*-small.csv")
    with open(table, newline="", encoding="utf-8") as file:
        medians = {(line["row"], line["allocator"]): line
                   for line in csv.DictReader(line for line in file if not line.startswith("# "))}
    assert list(medians) == [(row, name) for row in result["rows"] for name in names]
    for (row, name), line in medians.items():
        entry = result["summary"]["rows"][row][name]
        assert float(line["time_s"]) == pytest.approx(entry["time_s"], rel=1e-3) and line["rounds"] == "2"
        assert line["time_ratio"] == "" if name == "hakmem" else float(line["time_low"]) <= float(line["time_ratio"])
        assert "fill_ms" not in line, "no line has one"
    assert len(list(folder.glob("*-small.html"))) == 1
    assert ANSI not in done.stdout + done.stderr


def test_the_means_come_first(measured):
    """Of all figures the first are the means over the rows, and of these the one over the real programs."""
    from hakmem.bench.table import MEANS

    result = tool.only_result(measured[0])
    known = {*result["allocators"], *result["rows"]} - {result["subject"]}
    first = [line.split()[0] for line in measured[1].stdout.splitlines() if line.split() and line.split()[0] in known]
    assert first[:2] == ["glibc", "hakmem-again"] and next(iter(MEANS)) == "time_programs"


def test_a_result_is_shown_again(measured, tmp_path):
    """The same tables, as CSV, and as a page: the page's own check is the contract. Another file is refused."""
    from hakmem.report.result import check_result

    folder, done = measured
    check_result(tool.only_result(folder))
    (path,) = folder.glob("*.json.xz")
    assert tool.run(tmp_path, "bench", "show", path).stdout == done.stdout
    assert len(list(csv.DictReader(tool.run(tmp_path, "bench", "show", path, "--csv").stdout.splitlines()))) == 12
    (tmp_path / "other.json").write_text('{"format": "other"}')
    status, said = tool.refused(tmp_path, "bench", "show", tmp_path / "other.json")
    assert status == 1 and f"{tmp_path}/other.json" in said


def test_memory_of_idle_programs_and_system_calls(tmp_path):
    done = tool.run(tmp_path, "bench", "--warm", 1, "--out", tmp_path, *tool.TWO, "--scale", "0.01", "--rows",
                    "^phases$", "--rounds", 2, "--json")
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    assert result == tool.only_result(tmp_path)
    first, second = ([s for s in result["samples"] if s["round"] == number] for number in range(2))
    assert all(s["idle_rss_kib"] > 500 and "mean_rss_kib" not in s for s in first)
    assert all(0 < s["idle_private_kib"] < s["idle_rss_kib"] for s in first)
    assert all(0 < s["peak_private_kib"] < s["peak_rss_kib"] for s in first)
    assert all("idle_rss_kib" not in s and "peak_private_kib" not in s for s in second)
    assert [entry["allocator"] for entry in result["calls"]] == ["glibc", "hakmem"]
    assert all(entry["memory_total"] == sum(entry["memory"].values()) > 5 for entry in result["calls"])


def test_what_goes_wrong_is_shown_and_not_repeated(compiled, library, tmp_path):
    """One library crashes, one ends with a status, one is no library, and a setting reaches its allocator alone."""
    crash, status = (compiled(AT_START, f"-DMODE={mode}", shared=True) for mode in (1, 2))
    none = tmp_path / "none.so"
    none.write_text("no library")
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 3, "--add", f"bad={crash}", "--add", f"odd={status}",
                      "--add", f"none={none}", "--add", f"tuned={library}", "--setting",
                      "tuned:HAKMEM_MEMORY_LIMIT=4096")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    found = {name: [s["status"] for s in result["samples"] if s["allocator"] == name] for name in result["allocators"]}
    assert found["tuned"] in (["failed"] * 2, ["crashed"] * 2)
    del found["tuned"]
    assert found == {"glibc": ["ok"] * 3, "hakmem": ["ok"] * 3, "hakmem-again": ["ok"] * 3, "bad": ["crashed"] * 2,
                     "odd": ["failed"] * 2, "none": ["refused"] * 2}
    details = {s["allocator"]: s["detail"] for s in result["samples"] if s["status"] != "ok"}
    assert details["bad"] == "SIGSEGV" and details["odd"] == "exit status 9"
    assert result["summary"]["rows"]["random-mixed-256"]["bad"] == {"status": "crashed"}
    assert result["summary"]["overall"]["bad"] == {}
    assert result["allocators"]["tuned"]["setting"] == {"HAKMEM_MEMORY_LIMIT": "4096"}
    for word in ("SIGSEGV", "exit status 9"):
        assert word in done.stdout, done.report()


def test_a_run_that_takes_too_long_is_ended(compiled, tmp_path):
    from hakmem.bench import allocators, runner
    from hakmem.bench.rows import Row

    slow = compiled(AT_START, "-DMODE=3", shared=True)
    row = Row("r", "program", 1, "", ("true",), "wall", time_limit_s=0.3)
    began = time.monotonic()
    sample = runner.run_once(row, allocators.from_library("slow", slow), runner.Conditions(files=tmp_path), warm=0)
    assert time.monotonic() - began < blackbox.HANG
    assert sample["status"] == "timeout" and "0.3 s" in sample["detail"]


def test_private_variables_are_cleared(monkeypatch, tmp_path):
    from hakmem.bench import allocators, runner
    from hakmem.bench.rows import Row

    for name in ("HAKMEM_VERBOSE", "BENCH_IDLE_MS", "LD_PRELOAD_X", "MALLOC_ARENA_MAX", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OTHER_X", "kept")
    row = Row("r", "program", 1, "", ("true",), "wall", setting={"ROW_X": "row"})
    conditions = runner.Conditions(files=tmp_path, env=(("HAKMEM_VERBOSE", "2"),))
    env = runner.environment(row, allocators.glibc(), conditions)
    assert env["HAKMEM_VERBOSE"] == "2" and env["ROW_X"] == "row" and env["OTHER_X"] == "kept"
    assert not {"BENCH_IDLE_MS", "LD_PRELOAD_X", "MALLOC_ARENA_MAX", "PYTHONPATH"} & set(env)


# One row; the fifth run of the allocator `gate` waits until it is ended.
RESUMED = ("bench", *tool.QUICKLY, "--allocators", "hakmem", *SMALL, "--rounds", "8")


def test_a_killed_run_is_resumed(compiled, tmp_path):
    """Only the same run, and none while another is measuring. All samples that were kept are in the result."""
    from hakmem.report import columns

    gate, journal = tmp_path / "gate", tmp_path / ".running/run.jsonl"
    run = (*RESUMED, "--add", f"gate={compiled(AT_START, '-DMODE=4', shared=True)}", "--setting", f"gate:GATE={gate}",
           "--out", tmp_path)
    process = tool.start(tmp_path, *run)
    blackbox.wait_for(lambda: gate.exists() and gate.stat().st_size == 5, "the run that waits")
    status, said = tool.refused(tmp_path, *RESUMED, "--name", "second", "--out", tmp_path)
    assert status == 1, said
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=blackbox.HANG)

    def resumed(*more):
        return tool.refused(tmp_path, *run, "--resume", *more)

    before = journal.read_text()
    assert before.count('{"sample"') == 4 * 3, "whole rounds of three allocators"
    assert [status for status, _ in (resumed("--scale", "0.1"), resumed("--name", "other"))] == [1, 1]
    for text, word in ((re.sub(r'"sha256": "\w{64}"', '"sha256": "0"', before), "sha256"),
                       (before.replace('"cpus": ', '"cpus": 9'), "machine.cpus"),
                       (before.split("\n", 1)[0] + "\nnonsense\n", "line 2")):
        journal.write_text(text)
        status, said = resumed()
        assert status == 1 and word in said, said
    # What is left of a killed writer is left out.
    journal.write_text(before + '{"sample": {"row": "tr')
    done = tool.run(tmp_path, *run, "--resume")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    runs = Counter((s["allocator"], s["round"]) for s in result["samples"])
    assert set(runs.values()) == {1} and len(runs) == 3 * 8
    kept = [columns.rounded(json.loads(line)["sample"], columns.SAMPLE_DIGITS) for line in before.splitlines()
            if line.startswith('{"sample"')]
    assert all(sample in result["samples"] for sample in kept)
    assert not journal.exists()


def test_rows_are_listed(tmp_path):
    done = tool.run(tmp_path, "bench", "--list", "--rows", "larson")
    assert done.status == 0 and "larson-4" in done.stdout and "random" not in done.stdout


@pytest.mark.parametrize("arguments, status, word", [
    (["--allocators", "nosuch"], 2, "nosuch"),
    (["--rows", "nosuch"], 2, "nosuch"),
    (["--rows", "("], 2, "--rows ("),
    (["--allocators", "glibc"], 2, "hakmem"),
    (["--subject", "nosuch"], 2, "nosuch"),
    (["--add", "mine=/nowhere.so"], 1, "/nowhere.so"),
    (["--add", "mine"], 2, "NAME=LIBRARY"),
    (["--add", "glibc=/bin/true"], 2, "glibc"),
    (["--setting", "hakmem=3"], 2, "ALLOCATOR:NAME=VALUE"),
    (["--setting", "nosuch:A=3"], 2, "nosuch"),
    (["--env", "A"], 2, "NAME=VALUE"),
    (["--full"], 1, "hakmem peers build"),
    (["--quick", "--full"], 2, "--quick"),
    (["--name", "a/b"], 2, "--name a/b"),
    (["--rounds", "0"], 2, "--rounds"),
    (["--time", "0"], 2, "--time"),
    (["--out", "/proc/nosuch"], 1, "/proc/nosuch"),
])
def test_mistakes_are_named(tmp_path, arguments, status, word):
    row = [] if "--rows" in arguments else ["--rows", "^tiny-16B-1$"]
    found, said = tool.refused(tmp_path, "bench", "--rounds", 1, "--scale", "0.001", *row, *tool.QUICKLY,
                               *(["--out", tmp_path] if "--out" not in arguments else []), *arguments)
    assert found == status and word in said, said


def test_a_build_that_is_missing_is_named(tmp_path):
    env = {**tool.environment(tmp_path), "HAKMEM_BUILD_DIR": str(tmp_path)}
    done = blackbox.run([tool.sys.executable, "-m", "hakmem", "bench", "--rounds", "1"], env=env)
    assert done.status == 1 and f"{tmp_path}/bin/bench_measure" in done.stderr


def test_results_go_where_the_user_may_write(monkeypatch, tmp_path, capsys):
    """As in another user's checkout. A message names the folder."""
    from hakmem import paths
    from hakmem.bench import command

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "results_folder", lambda: tmp_path / "checkout/results")
    assert command.writable_results() == tmp_path / "checkout/results"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    own = tmp_path / "state/hakmem/results"
    assert command.writable_results() == own
    assert str(own) in capsys.readouterr().err
