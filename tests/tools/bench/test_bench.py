"""Protects hakmem bench, from the command line to the files."""

import csv
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import blackbox
import pytest
import tool

AT_START = Path(__file__).with_name("at_start.c")
SMALL = ("--scale", "0.002", "--rows", "^random-mixed-256$")
ANSI = "\x1b"


def test_results_are_written(tmp_path):
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rows", "^true$", "--rounds", 2, "--name", "small")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
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
    (table,) = tmp_path.glob("*-small.csv")
    with open(table, newline="", encoding="utf-8") as file:
        told, lines = [], []
        for line in file:
            (told if line.startswith("# ") else lines).append(line)
    assert any(line.startswith("# command: hakmem ")
               for line in told) and any(line.startswith("# machine: ") for line in told)
    medians = {(line["row"], line["allocator"]): line for line in csv.DictReader(lines)}
    assert list(medians) == [(row, name) for row in result["rows"] for name in names]
    for (row, name), line in medians.items():
        entry = result["summary"]["rows"][row][name]
        assert float(line["time_s"]) == pytest.approx(entry["time_s"], rel=1e-3) and line["rounds"] == "2"
        assert line["time_ratio"] == "" if name == "hakmem" else float(line["time_low"]) <= float(line["time_ratio"])
        assert "fill_ms" not in line, "no line has one"
    assert len(list(tmp_path.glob("*-small.html"))) == 1
    assert list((tmp_path / ".running").iterdir()) == []
    assert "Time of hakmem" in done.stdout and "Noise: hakmem divided by its own copy" in done.stdout
    assert ANSI not in done.stdout + done.stderr


def test_the_report_accepts_the_result(tmp_path):
    """Where both exist, the page's own check is the contract."""
    from hakmem.report.result import check_result

    assert tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 1).status == 0
    check_result(tool.only_result(tmp_path))


def test_show_prints_the_same_tables(tmp_path):
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 2)
    (path,) = tmp_path.glob("*.json.xz")
    shown = tool.run(tmp_path, "bench", "show", path)
    assert shown.status == 0, shown.report()
    assert shown.stdout == done.stdout
    path.write_text('{"format": "other"}')
    shown = tool.run(tmp_path, "bench", "show", path)
    assert shown.status == 1 and str(path) in shown.stderr and "Traceback" not in shown.stderr


def test_json_and_csv_are_printed(tmp_path):
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 1, "--json")
    assert json.loads(done.stdout) == tool.only_result(tmp_path)
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 1, "--csv")
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 3
    assert len(list(tmp_path.glob("*-run.json.xz")) + list(tmp_path.glob("*-run-2.json.xz"))) == 2


def test_memory_of_idle_programs_and_system_calls(tmp_path):
    done = tool.run(tmp_path, "bench", "--warm", 1, "--out", tmp_path, *tool.TWO, "--scale", "0.01", "--rows",
                    "^phases$", "--rounds", 2)
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    first, second = ([s for s in result["samples"] if s["round"] == number] for number in range(2))
    assert all(s["idle_rss_kib"] > 500 and "mean_rss_kib" not in s for s in first)
    assert all(0 < s["idle_private_kib"] < s["idle_rss_kib"] for s in first)
    assert all(0 < s["peak_private_kib"] < s["peak_rss_kib"] for s in first)
    assert all("idle_rss_kib" not in s and "peak_private_kib" not in s for s in second)
    assert "Private dirty memory of hakmem at the peak" in done.stdout and "Private dirty memory then" in done.stdout
    assert min(s["wall_s"] for s in second) < 1.2 <= min(s["wall_s"] for s in first), "only the first round waits"
    assert [entry["allocator"] for entry in result["calls"]] == ["glibc", "hakmem"]
    assert all(entry["memory_total"] == sum(entry["memory"].values()) > 5 for entry in result["calls"])


def test_what_goes_wrong_is_shown_and_not_repeated(compiled, tmp_path):
    """One library crashes, one ends with a status, one takes too long, and one is no library."""
    crash, status = (compiled(AT_START, f"-DMODE={mode}", shared=True) for mode in (1, 2))
    none = tmp_path / "none.so"
    none.write_text("no library")
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 4, "--add", f"bad={crash}", "--add", f"odd={status}",
                      "--add", f"none={none}")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    counts = Counter((s["allocator"], s["status"]) for s in result["samples"])
    assert counts == {("glibc", "ok"): 4, ("hakmem", "ok"): 4, ("hakmem-again", "ok"): 4, ("bad", "crashed"): 2,
                      ("odd", "failed"): 2, ("none", "refused"): 2}
    details = {s["allocator"]: s["detail"] for s in result["samples"] if s["status"] != "ok"}
    assert details["bad"] == "SIGSEGV"
    assert details["odd"] == "exit status 9"
    assert "cannot be preloaded" in details["none"]
    assert result["summary"]["rows"]["random-mixed-256"]["bad"] == {"status": "crashed"}
    assert result["summary"]["overall"]["bad"] == {}
    assert "crashed (SIGSEGV)" in done.stdout
    assert "random-mixed-256 on odd: failed: exit status 9" in done.stdout
    assert "left out of the means" in done.stdout


def test_a_run_that_takes_too_long_is_ended(compiled, tmp_path):
    from hakmem.bench import allocators, runner
    from hakmem.bench.rows import Row

    slow = compiled(AT_START, "-DMODE=3", shared=True)
    row = Row("r", "program", 1, "", ("true",), "wall", time_limit_s=0.3)
    began = time.monotonic()
    sample = runner.run_once(row, allocators.from_library("slow", slow), runner.Conditions(files=tmp_path), warm=0)
    assert time.monotonic() - began < blackbox.HANG
    assert (sample["status"], sample["detail"]) == ("timeout", "no end after 0.3 s")


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


def wait_for_samples(path, number, process):
    deadline = time.monotonic() + blackbox.HANG
    while not (path.exists() and path.read_text().count('{"sample"') >= number):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


RESUMED = ("bench", *tool.QUICKLY, *tool.TWO, "--scale", "0.05", "--rows", "^random-mixed-256$", "--rows", "^true$",
           "--rounds", "8")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_is_resumed(tmp_path, how):
    from hakmem.report import columns

    journal = tmp_path / ".running/run.jsonl"
    process = tool.start(tmp_path, *RESUMED, "--out", tmp_path)
    wait_for_samples(journal, 14, process)
    os.kill(process.pid, how)
    _, err = process.communicate(timeout=blackbox.HANG)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in err and str(journal) in err
    before = journal.read_text()
    assert 14 <= before.count('{"sample"') < 40
    with open(journal, "a", encoding="utf-8") as file:
        file.write('{"sample": {"row": "tr')  # what is left of a killed writer
    done = tool.run(tmp_path, *RESUMED, "--out", tmp_path, "--resume")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    runs = Counter((s["row"], s["allocator"], s["round"]) for s in result["samples"])
    assert set(runs.values()) == {1} and len(runs) == 2 * 3 * 8
    kept = [columns.rounded(json.loads(line)["sample"], columns.SAMPLE_DIGITS) for line in before.splitlines()
            if line.startswith('{"sample"')]
    assert all(sample in result["samples"] for sample in kept[:12])
    assert not journal.exists()


def test_only_the_same_run_is_resumed(tmp_path):
    journal = tmp_path / ".running/run.jsonl"
    process = tool.start(tmp_path, *RESUMED, "--out", tmp_path)
    wait_for_samples(journal, 4, process)
    process.kill()
    process.communicate()

    def resumed(*more):
        return tool.run(tmp_path, *RESUMED, "--out", tmp_path, "--resume", *more)

    done = resumed("--scale", "0.1")
    assert done.status == 1 and "conditions.scale was 0.05 and is 0.1" in done.stderr
    done = resumed("--name", "other")
    assert done.status == 1 and "there is no run to resume" in done.stderr
    text = journal.read_text()
    journal.write_text(re.sub(r'"sha256": "\w{64}"', '"sha256": "0"', text))
    done = resumed()
    assert done.status == 1 and "allocators.glibc.sha256 was" in done.stderr
    journal.write_text(text.replace('"cpus": ', '"cpus": 9'))
    done = resumed()
    assert done.status == 1 and "machine.cpus was 9" in done.stderr
    journal.write_text(text.split("\n", 1)[0] + "\nnonsense\n")
    done = resumed()
    assert done.status == 1 and "line 2 is damaged" in done.stderr


def test_an_unfinished_run_is_not_lost(tmp_path):
    journal = tmp_path / ".running/run.jsonl"
    journal.parent.mkdir()
    journal.write_text("an old one\n")
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 1)
    assert done.status == 0 and "--resume would go on" in done.stderr
    assert journal.with_name("run.jsonl.old").read_text() == "an old one\n"


def test_the_time_is_kept(tmp_path):
    """Six seconds for work of minutes: whole rounds of each row, and none started after the time was over."""
    done = tool.bench(tmp_path, *tool.TWO, "--time", "0.1", "--rows", "random-mixed-256", "--rows", "^true$", "--scale",
                      "0.1")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    journaled = Counter((s["row"], s["round"]) for s in result["samples"])
    assert set(journaled.values()) == {3}
    assert 2 <= len(journaled) <= 80
    assert sum(s["wall_s"] for s in result["samples"][:-3]) < 6


def test_two_at_once_are_refused(tmp_path):
    process = tool.start(tmp_path, *RESUMED, "--out", tmp_path)
    wait_for_samples(tmp_path / ".running/run.jsonl", 1, process)
    done = tool.bench(tmp_path, *tool.TWO, *SMALL, "--rounds", 1, "--name", "second")
    process.terminate()
    process.communicate()
    assert done.status == 1 and "another run is measuring" in done.stderr


def test_a_library_of_ones_own_and_its_setting(library, tmp_path):
    """The variable reaches only that allocator: HAKMEM prints so at its start."""
    done = tool.bench(tmp_path, "--allocators", "hakmem,tuned", "--add", f"tuned={library}", *SMALL, "--rounds", 1,
                      "--setting", "tuned:HAKMEM_MEMORY_LIMIT=4096")
    assert done.status == 0, done.report()
    result = tool.only_result(tmp_path)
    status = {s["allocator"]: s["status"] for s in result["samples"]}
    assert status["hakmem"] == status["hakmem-again"] == "ok"
    assert status["tuned"] in ("failed", "crashed")
    assert result["allocators"]["tuned"]["setting"] == {"HAKMEM_MEMORY_LIMIT": "4096"}


def test_rows_are_listed(tmp_path):
    done = tool.run(tmp_path, "bench", "--list", "--rows", "larson")
    assert done.status == 0
    assert "larson-4" in done.stdout and "server simulation" in done.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--allocators", "nosuch"], "no such allocator: nosuch (there are glibc, hakmem)"),
    (["--rows", "nosuch"], "no row matches nosuch; there are random-mixed-256"),
    (["--rows", "("], "--rows (:"),
    (["--allocators", "glibc"], "the subject hakmem is not among the chosen allocators glibc"),
    (["--subject", "nosuch"], "the subject nosuch is not among the allocators"),
    (["--add", "mine=/nowhere.so"], "mine: there is no library /nowhere.so"),
    (["--add", "mine"], "--add wants NAME=LIBRARY, not 'mine'"),
    (["--add", "glibc=/bin/true"], "there is an allocator of that name already"),
    (["--setting", "hakmem=3"], "--setting wants ALLOCATOR:NAME=VALUE"),
    (["--setting", "nosuch:A=3"], "no such allocator: nosuch"),
    (["--env", "A"], "--env wants NAME=VALUE, not 'A'"),
    (["--full"], "no peers are built: run `hakmem peers build`; or choose what there is with --allocators"),
    (["--quick", "--full"], "exclude each other"),
    (["--name", "a/b"], "--name a/b"),
    (["--rounds", "0"], "--rounds"),
    (["--time", "0"], "--time"),
    (["--out", "/proc/nosuch"], "/proc/nosuch"),
])
def test_mistakes_are_named(tmp_path, arguments, message):
    done = tool.run(tmp_path, "bench", "--rounds", 1, "--scale", "0.001", "--rows", "^tiny-16B-1$", *tool.QUICKLY,
                    *(["--out", tmp_path] if "--out" not in arguments else []), *arguments)
    if arguments[:1] == ["--rows"]:
        done = tool.bench(tmp_path, *arguments)
    # A missing file is not wrong use.
    assert done.status == (1 if arguments[0] in ("--full", "--out") or arguments[-1] == "mine=/nowhere.so" else 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_build_that_is_missing_is_named(tmp_path):
    env = {**tool.environment(tmp_path), "HAKMEM_BUILD_DIR": str(tmp_path)}
    done = blackbox.run([tool.sys.executable, "-m", "hakmem", "bench", "--rounds", "1"], env=env)
    assert done.status == 1
    assert f"{tmp_path}/bin/bench_measure is not there; ./hakmem build builds it" in done.stderr


def test_in_anothers_checkout():
    """Inputs and results go where the user may write, and a message says so."""
    assert os.getuid() == 0, "this test becomes another user"
    with tempfile.TemporaryDirectory(prefix="hakmem-nobody-") as made:
        os.chmod(made, 0o777)
        env = {**tool.environment(Path(made)), "XDG_CACHE_HOME": f"{made}/cache"}
        done = blackbox.run([
            sys.executable, "-m", "hakmem", "bench", *tool.QUICKLY, *tool.TWO, "--rounds", "1", "--scale", "0.001",
            "--rows", "^tiny-16B-1$"
        ], env=env, user="nobody", cwd="/")
        assert done.status == 0, done.report()
        results = Path(made, "state/hakmem/results")
        assert f"cannot be written to; the results go to {results} (--out FOLDER takes another)" in done.stderr
        assert len(list(results.glob("*.json.xz"))) == 1
