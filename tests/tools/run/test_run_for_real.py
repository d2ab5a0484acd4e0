"""Protects `hakmem run` with real programs: reports and profiles however they end, and the build for --profile."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "hakmem"
BUILD_SECONDS = 500


# ---- --profile, on the flavor that is built for it ----


def cycles_of(stderr):
    """The calls of malloc in the table, and its rows by kind."""
    calls = re.search(r"^hakmem: malloc: the fast path served \d+ of (\d+) calls", stderr, re.M)
    rows = {found[1]: int(found[2]) for found in re.finditer(r"^hakmem: (\w+) +(\d+)( |$)", stderr, re.M)}
    return int(calls[1]), rows


def test_profile_builds_what_it_takes(counts):
    """By the script, in a checkout with or without build/cycles."""
    result = blackbox.run([SCRIPT, "run", "--profile", "--", counts, 30000, "status", 9], timeout=BUILD_SECONDS)
    assert result.status == 9, result.report()
    calls, rows = cycles_of(result.stderr)
    assert 30000 < calls < 30100
    assert calls == sum(rows[f"malloc_{kind}"] for kind in ("hit", "miss", "large", "huge"))
    library = blackbox.REPOSITORY / "build/cycles/lib/libhakmem.so"
    assert "observe_cycles" in subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("option", ["--stats", "--profile"])
def test_tools_that_close_standard_error(option):
    """GNU's tools close it before the report."""
    result = blackbox.run([SCRIPT, "run", option, "--", "sort", "/etc/passwd"], timeout=BUILD_SECONDS)
    assert result.status == 0 and result.stdout == "".join(sorted(Path("/etc/passwd").read_text().splitlines(True)))
    assert {"--stats": "hakmem: mapped", "--profile": "hakmem: malloc_hit"}[option] in result.stderr, result.report()


def test_profile_with_a_build_that_carries_none(launch):
    result = launch("--profile", "true")
    assert result.status == 0
    assert "hakmem: HAKMEM_TINY_PROFILE: this build carries no cycle profile" in result.stderr


# ---- Statistics ----


def statistics(stderr):
    """The JSON documents in the output."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := stderr.find('{"hakmem":', at)) >= 0:
        document, at = decoder.raw_decode(stderr, at)
        found.append(document)
    return found


def test_statistics_of_the_program(launch, counts):
    result = launch("--stats=json", "--", counts, 5000)
    (stats,) = statistics(result.stderr)
    (row,) = (row for row in stats["classes"] if row["block_size"] == 1024)
    assert row["live_blocks"] == 5000, result.report()


def test_a_program_that_becomes_another(launch, counts):
    """The program at the end reports. One that exec replaces does not."""
    result = launch("--stats=json", "--", counts, 5000, "exec", "bash", "-c", "echo $$; exit 4")
    assert result.status == 4, result.report()
    (stats,) = statistics(result.stderr)
    assert stats["pid"] == int(result.stdout)
    assert all(row["live_blocks"] < 5000 for row in stats["classes"])


def test_children_report_for_themselves(launch, counts):
    result = launch("--stats=json", "--", "bash", "-c", f"{counts} 3000; {counts} 4000; exit 0")
    kept = [max(row["live_blocks"] for row in stats["classes"] if row["block_size"] == 1024)
            for stats in statistics(result.stderr) if any(row["block_size"] == 1024 for row in stats["classes"])]
    assert {3000, 4000} <= set(kept) and len(statistics(result.stderr)) == 3, result.report()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_program_that_dies_by_a_signal_leaves_its_profile_alone(launch, counts, tmp_path, number):
    result = launch("--stats", "--heap-profile", tmp_path / "heap.gz", "--", counts, 5000, "signal", int(number))
    assert result.status == -number
    assert (result.stdout, result.stderr, [file.name for file in tmp_path.iterdir()]) == ("", "", ["heap.gz"])


# ---- Heap profile ----


def test_a_heap_profile(launch, counts, tmp_path):
    file = tmp_path / "heap.gz"
    result = launch("--heap-profile", file, "--set", "heap_profile_rate=4096", "--", counts, 5000, "status", 6)
    assert (result.status, result.stderr) == (6, ""), result.report()
    told = blackbox.run([sys.executable, "-m", "hakmem", "heap", "--json", file], env={"COLUMNS": "300"})
    assert told.status == 0, told.report()
    data = json.loads(told.stdout)
    site = next(site for site in data["sites"] if site["name"].startswith("keep"))
    assert site["flat"]["inuse_space"] == pytest.approx(5000 * 1024, rel=0.15)


def test_a_heap_profile_of_each_process(launch, counts, tmp_path):
    command = f"{counts} 100; {counts} 100; exit 0"
    result = launch("--heap-profile", tmp_path / "heap.%p.gz", "--", "bash", "-c", command)
    assert result.status == 0, result.report()
    files = list(tmp_path.iterdir())
    assert len(files) == 3 and all(re.fullmatch(r"heap\.\d+\.gz", file.name) for file in files)
    assert all(gzip.decompress(file.read_bytes()) for file in files)


def test_a_heap_profile_of_a_program_that_becomes_another(launch, counts, tmp_path):
    """The program runs in another folder. FILE is relative to the folder of `run`."""
    result = launch("--heap-profile", "heap.gz", "--", "bash", "-c", f"cd /; exec {counts} 3000", cwd=tmp_path)
    assert result.status == 0, result.report()
    assert [file.name for file in tmp_path.iterdir()] == ["heap.gz"]


def test_everything_at_once(launch, counts, tmp_path):
    result = launch("--stats", "--heap-profile", tmp_path / "heap.gz", "--set", "verbose=1", "--", counts, 100)
    assert result.status == 0 and (tmp_path / "heap.gz").exists()
    assert "hakmem: version" in result.stderr and "hakmem: memory in bytes" in result.stderr


# ---- What cannot be ----


def test_a_file_that_nobody_can_make(launch, counts):
    """If the folder passes the check, the library reports the error at the end. The program's status stays."""
    result = launch("--heap-profile", "/proc/heap.gz", "--", counts, 100, "status", 5)
    assert result.status == 5, result.report()
    assert re.fullmatch(r"hakmem: HAKMEM_HEAP_PROFILE: /proc/heap.gz could not be written: .+\n", result.stderr)


@pytest.fixture
def open_folder():
    """A folder that others may read. pytest closes its own folders to others at the start of each session."""
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_folder_that_the_user_may_not_look_into(launch, open_folder):
    closed = open_folder / "closed"
    (closed / "inner").mkdir(parents=True)
    os.chmod(closed, 0o700)
    result = launch("--heap-profile", closed / "inner/heap.gz", "true", user="nobody",
                    env={"PYTHONDONTWRITEBYTECODE": "1"})
    # The script's own check cannot tell a missing folder from a closed one.
    said = f"{closed}/inner cannot be looked into", f"there is no folder {closed}/inner"
    assert result.status == 2 and any(words in result.stderr for words in said), result.report()


def test_a_file_that_the_user_may_not_make(launch, open_folder):
    result = launch("--heap-profile", open_folder / "heap.gz", "true", user="nobody",
                    env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert result.status == 2 and f"{open_folder} cannot be written to" in result.stderr, result.report()


def test_a_file_that_the_user_may_not_write(launch, open_folder):
    os.chmod(open_folder, 0o777)
    file = open_folder / "heap.gz"
    file.write_text("kept")
    result = launch("--heap-profile", file, "true", user="nobody", env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert result.status == 2 and f"{file} cannot be written to" in result.stderr, result.report()
    assert file.read_text() == "kept"


@pytest.mark.parametrize("name, status, words", [
    ("nosuchprogram", 127, "program 'nosuchprogram' not found"),
    ("/no/such/program", 127, "program '/no/such/program' not found"),
    ("./words", 126, "program './words' is not executable"),
    ("/tmp", 126, "program '/tmp' is a folder"),
])
def test_programs_that_cannot_be_run(launch, tmp_path, name, status, words):
    (tmp_path / "words").write_text("words\n")
    result = launch("--stats", "--", name, cwd=tmp_path)
    assert (result.status, result.stdout, result.stderr) == (status, "", f"hakmem: {words}\n")


def test_a_program_of_no_known_kind(launch, tmp_path):
    """The file is executable, and of no kind that the kernel knows. A shell takes it for a script."""
    (tmp_path / "odd").write_bytes(b"\x7fELF" + bytes(100))
    os.chmod(tmp_path / "odd", 0o755)
    result = launch("--", "./odd", cwd=tmp_path)
    assert result.status in (126, 127) and "odd" in result.stderr and "Traceback" not in result.stderr, result.report()
