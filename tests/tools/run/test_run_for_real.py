"""Protects `hakmem run` with real programs: statistics and heap profiles, however the programs end."""

import gzip
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import launch, statistics

import blackbox

# ---- Statistics ----


def test_statistics_are_the_last_programs(counts):
    """The program at the end reports. One that exec replaces does not. GNU's tools close standard error before."""
    (stats,) = statistics(launch("--stats=json", "--", counts, 5000).stderr)
    (row,) = (row for row in stats["classes"] if row["block_size"] == 1024)
    assert row["live_blocks"] == 5000
    result = launch("--stats=json", "--", counts, 5000, "exec", "bash", "-c", "echo $$; exit 4")
    assert result.status == 4, result.report()
    (stats,) = statistics(result.stderr)
    assert stats["pid"] == int(result.stdout) and all(row["live_blocks"] < 5000 for row in stats["classes"])
    result = launch("--stats=json", "--", "sort", "/etc/passwd")
    assert result.stdout == "".join(sorted(Path("/etc/passwd").read_text().splitlines(True)))
    assert len(statistics(result.stderr)) == 1, result.report()


def test_children_report_for_themselves(counts):
    result = launch("--stats=json", "--", "bash", "-c", f"{counts} 3000; {counts} 4000; exit 0")
    kept = [max(row["live_blocks"] for row in stats["classes"] if row["block_size"] == 1024)
            for stats in statistics(result.stderr) if any(row["block_size"] == 1024 for row in stats["classes"])]
    assert {3000, 4000} <= set(kept) and len(statistics(result.stderr)) == 3, result.report()


# ---- Heap profile ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_dies_by_a_signal_leaves_its_profile_alone(counts, tmp_path, number):
    result = launch("--stats", "--heap-profile", tmp_path / "heap.gz", "--", counts, 5000, "signal", int(number))
    assert result.status == -number
    assert (result.stdout, result.stderr, [file.name for file in tmp_path.iterdir()]) == ("", "", ["heap.gz"])


def test_a_heap_profile(counts, tmp_path):
    """Every block is sampled at this rate, so the figure is exact."""
    file = tmp_path / "heap.gz"
    result = launch("--heap-profile", file, "--set", "heap_profile_rate=1", "--", counts, 500, "status", 6)
    assert (result.status, result.stderr) == (6, ""), result.report()
    shown = blackbox.run([sys.executable, "-m", "hakmem", "heap", "--json", file], env={"COLUMNS": "300"})
    assert shown.status == 0, shown.report()
    site = next(site for site in json.loads(shown.stdout)["sites"] if site["name"].startswith("keep"))
    assert site["flat"]["inuse_space"] == 500 * 1024


def test_a_heap_profile_of_each_process(counts, tmp_path):
    command = f"{counts} 100; {counts} 100; exit 0"
    result = launch("--heap-profile", tmp_path / "heap.%p.gz", "--", "bash", "-c", command)
    assert result.status == 0, result.report()
    files = list(tmp_path.iterdir())
    assert len(files) == 3 and all(re.fullmatch(r"heap\.\d+\.gz", file.name) for file in files)
    assert all(gzip.decompress(file.read_bytes()) for file in files)


def test_a_heap_profile_lies_in_the_folder_of_run(counts, tmp_path):
    """The program becomes another, in another folder. Statistics may be wanted besides."""
    result = launch("--stats=json", "--heap-profile", "heap.gz", "--", "bash", "-c", f"cd /; exec {counts} 3000",
                    cwd=tmp_path)
    assert result.status == 0 and len(statistics(result.stderr)) == 1, result.report()
    assert [file.name for file in tmp_path.iterdir()] == ["heap.gz"]


# ---- Files that cannot be written ----


def test_a_file_that_nobody_can_make(counts):
    """If the folder passes the check, the library reports the error at the end. The program's status stays."""
    result = launch("--heap-profile", "/proc/heap.gz", "--", counts, 100, "status", 5)
    assert result.status == 5 and len(result.stderr.splitlines()) == 1, result.report()
    assert "HAKMEM_HEAP_PROFILE" in result.stderr and "/proc/heap.gz" in result.stderr


def test_files_that_the_user_may_not_write(by_nobody, open_folder):
    """In a folder that the user may not look into, or not write to, and a file that is another user's."""
    closed, file = open_folder / "closed", open_folder / "heap.gz"
    (closed / "inner").mkdir(parents=True)
    os.chmod(closed, 0o700)

    def refused(path, word):
        result = by_nobody("--heap-profile", path, "true")
        assert result.status == 2 and str(word) in result.stderr, result.report()

    refused(closed / "inner/heap.gz", closed / "inner")
    refused(file, open_folder)
    os.chmod(open_folder, 0o777)
    file.write_text("kept")
    refused(file, file)
    assert file.read_text() == "kept"
