"""Protects `hakmem advise -- PROGRAM`: it runs the program with one option at a time, and measures again what helps."""

import json
import os
import signal
import subprocess
import sys

import click.testing
import pytest
from conftest import BUILD, hakmem

import blackbox
from hakmem.analyze import options
from hakmem.analyze.options import Part, choose, costs
from hakmem.cli import main


def test_what_each_option_does_is_measured():
    """The user's setting makes 120 MiB ready at the start, and nobody uses them. Leaving that out takes as much less.
    What is advised depends on times, too; choose() is tested below on figures by hand."""
    tried = {"HAKMEM_SS_PREWARM=0", "HAKMEM_WARM_POOL=16"}
    result = hakmem("advise", "--json", "--warm", "1", "--try", "ss_prewarm=0", "--try", "HAKMEM_WARM_POOL=16", "--",
                    "sleep", "0.01", env={"HAKMEM_SS_PREWARM": "60"}, timeout=120)
    assert result.status == 0, result.report()
    found = json.loads(result.stdout)
    samples = found["first"]["samples"]
    assert {sample["allocator"] for sample in samples} == {"system", "hakmem", "hakmem-again", *tried}
    assert len(samples) == 5 * found["first"]["rounds"] == 5 * options.ROUNDS
    peaks = {name: [sample["peak_rss_kib"] for sample in samples if sample["allocator"] == name]
             for name in ("hakmem", *tried)}
    assert max(peaks["HAKMEM_SS_PREWARM=0"]) < min(peaks["hakmem"]) - 90 * 1024
    assert max(peaks["HAKMEM_WARM_POOL=16"]) > min(peaks["hakmem"]) - 1024
    assert {one["setting"] for one in found["advice"]} <= tried


@pytest.mark.parametrize("words, status, message", [
    (["--", "false"], 1, "exit status 1"),
    (["--", "hakmem-no-such-program"], 1, "'hakmem-no-such-program'"),
    (["--", BUILD / "bin/bench_measure"], 1, f"{BUILD}/bin/bench_measure"),
    (["--limit", "0.2", "--", "sleep", "9"], 1, "0.2 s"),
    (["--try", "no_such=1", "--", "true"], 2, "HAKMEM_NO_SUCH"),
    (["--try", "verbose", "--", "true"], 2, "NAME=VALUE"),
    ([], 2, "PROGRAM"),
    (["./program"], 2, "hakmem advise -- ./program"),
    (["one", "two"], 2, "hakmem advise -- one two"),
    (["one", "--", "two"], 2, "one"),
])
def test_mistakes_are_named(words, status, message):
    arguments = ["advise", "--warm", "1", *map(str, words)]
    result = click.testing.CliRunner().invoke(main, arguments, env={"COLUMNS": "300", "HAKMEM_BUILD_DIR": str(BUILD)})
    assert result.exit_code == status and not result.stdout, result.output
    assert message in result.stderr, result.output


# The program of the first three rounds ends at once. A later one waits until it is ended.
GATE = 'echo >> "$0"; test $(wc -l < "$0") -le 14 || sleep 600'


def test_an_interrupt_leaves_what_there_is(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "hakmem", "advise", "--warm", "1", "--try", "thp=never", "--", "sh", "-c", GATE,
         tmp_path / "runs"],
        env=blackbox.environment({"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "HAKMEM_BUILD_DIR": str(BUILD)}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = tmp_path / "runs"
    blackbox.wait_for(lambda: runs.exists() and len(runs.read_text()) >= 15, "the run that waits")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=blackbox.HANG)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "THP=never" in out.replace("thp", "THP"), out


# ---- What is chosen, on figures by hand ----

def part(**figures):
    """A Part with seven rounds: (time, peak) for each name, with noise of half a per cent."""
    from hakmem.bench import statistics

    samples = []
    for name, (seconds, peak) in {"system": (1.0, 1000), "hakmem": (1.0, 1000), "hakmem-again": (1.0, 1000),
                                  **figures}.items():
        for number in range(7):
            wave = 1 + (number - 3) / 600 * (1 if name != "hakmem" else -1)
            samples.append({
                "row": "program", "allocator": name, "round": number, "status": "ok", "time_s": seconds * wave,
                "peak_rss_kib": peak * wave, "mean_rss_kib": peak * wave
            })
    names = list(dict.fromkeys(sample["allocator"] for sample in samples))
    summary = statistics.summarize(samples, {"program": {"group": "program"}}, names, "hakmem", "hakmem-again")
    return Part({"subject": "hakmem", "allocators": dict.fromkeys(names), "samples": samples, "summary": summary})


@pytest.mark.parametrize("figures, chosen", [
    ({"A=1": (1.0, 800), "B=1": (1.0, 700)}, {"B=1": "peak_rss"}),
    ({"A=1": (1.0, 800), "B=1": (0.8, 1000)}, {"A=1": "peak_rss", "B=1": "time"}),
    ({"A=1": (1.2, 500), "B=1": (1.0, 900)}, {"B=1": "peak_rss"}),  # A costs time
    ({"A=1": (0.7, 1300)}, {}),  # costs memory
    ({"A=1": (1.0, 997), "B=1": (0.999, 1000)}, {}),  # within the noise
    ({"A=1": (1.0, 700), "A=2": (0.8, 1000)}, {"A=1": "peak_rss"}),  # one value for a variable
])
def test_at_most_one_option_for_memory_and_one_for_time(figures, chosen):
    found = choose(part(**figures), list(figures))
    assert set(found) == set(chosen)
    assert all(found[name] in (("time",) if chosen[name] == "time" else options.MEMORY) for name in chosen)


def test_a_cost_counts_though_it_may_be_noise():
    found = part(**{"A=1": (1.08, 1000)})
    assert costs(found, "A=1", ("time",)) and not costs(found, "hakmem-again", ("time",))
