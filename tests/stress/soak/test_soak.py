"""Protects the soak: its settings are valid, a run repeats by its seed, and it detects each kind of failure."""

import random
import subprocess
import sys
from pathlib import Path

import blackbox
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kinds  # noqa: E402
import running  # noqa: E402
import settings  # noqa: E402
from running import REPOSITORY_TESTS  # noqa: E402


def soak(tmp_path, script, *arguments):
    """The soak with the script as its `stress`."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/stress"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    command = [sys.executable, HERE / "soak.py", "--builds", f"release={tmp_path}", "--minutes", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=blackbox.HANG,
                          env=blackbox.environment(), check=False)


def test_settings_are_what_the_library_takes(tmp_path):
    seen = {}
    for seed in range(12):
        drawn = settings.draw(random.Random(seed), tmp_path)
        assert drawn == settings.draw(random.Random(seed), tmp_path)
        seen.update(drawn)
        done = blackbox.run(["/bin/true"], preload=blackbox.LIBRARY, env=drawn)
        assert done.status == 0, (drawn, done.report())
        assert " is not " not in done.stderr and "unknown variable" not in done.stderr, (drawn, done.report())
    assert len(seen) > len(settings.table()) / 2


def test_a_good_run_and_a_failed_one(tmp_path):
    done = soak(tmp_path, "exit 0", "--only", "stress", "--seed", "5")
    assert done.returncode == 0 and "stress --seed 5: ok" in done.stdout, done.stdout + done.stderr


def test_a_failed_run_is_told_with_its_seed(tmp_path):
    done = soak(tmp_path, "echo lost >&2; exit 3", "--only", "stress", "--seed", "6")
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "stress --seed 6: FAILED" in line)
    assert " 3" in line and "lost" in done.stdout


def test_a_hang_and_too_much_memory_are_failures(monkeypatch):
    with pytest.raises(running.Failure, match="its RSS was"):
        large = "import time; x = b'1' * (200 << 20); time.sleep(5)"
        running.run(running.Job([sys.executable, "-c", large], most_mib=100))
    monkeypatch.setattr(running, "patience", lambda seconds: 1)
    with pytest.raises(running.Failure, match="hangs"):
        running.run(running.Job(["sleep", "600"]))


def test_waves_see_contents_and_memory(compiled):
    waves = compiled(HERE / "waves.c")
    assert blackbox.run([waves, 2, 4, 100, 1, 64], preload=blackbox.LIBRARY).stdout == "2 waves\n"
    wrong = compiled(blackbox.REPOSITORY / "tests/tools/bench/overlapping_malloc.c", "-pthread", shared=True)
    assert blackbox.run([waves, 2, 4, 100, 1, 64], preload=wrong).status != 0
    kept = blackbox.run([waves, 1, 4, 100, 1, -1000, 1], preload=blackbox.LIBRARY)
    assert kept.status < 0 and "the RSS stays" in kept.stderr, kept.report()


def test_the_tables_name_what_there_is():
    sources = ["stress/soak/waves.c", *(f"process/life/{name}" for name in kinds.LIFE)]
    assert all((REPOSITORY_TESTS / source).exists() for source in sources), sources
    for name in kinds.DRIVERS:
        assert (Path(blackbox.LIBRARY_FOLDER).parent / "bin" / name).exists(), name
    files = {REPOSITORY_TESTS / file for _, file in kinds.REAL.values()}
    assert all(file.exists() for file in files)
    assert set(REPOSITORY_TESTS.glob("*/*/soak_*.py")) <= files, "a file that neither CI nor the soak runs"
