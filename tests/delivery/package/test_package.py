"""Protects ./hakmem package: its files, names and checksums, and that it makes the same bytes twice."""

import subprocess
import sys
from pathlib import Path

import blackbox

ROOT = Path(__file__).resolve().parents[3]


def make(folder: Path, work: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/package", "--work", work, *words, folder], text=True, capture_output=True,
        check=False, timeout=blackbox.HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_builds_are_the_same_bytes(tmp_path):
    contents = []
    for name in "one", "two":
        dist = tmp_path / name
        make(dist, tmp_path / f"work-{name}", "--only", "onefile")
        contents.append({path.name: path.read_bytes() for path in dist.iterdir()})
    assert contents[0] == contents[1]
    assert any(name.endswith(".tar.gz") for name in contents[0])


def test_the_sums_are_those_of_the_files(tmp_path):
    make(tmp_path, tmp_path / "work", "--only", "onefile")
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": OK") == sum(path.suffix == ".gz" for path in tmp_path.iterdir())


def test_an_unknown_kind_is_refused():
    done = subprocess.run([sys.executable, ROOT / "tools/package", "--only", "floppy"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2
    assert "floppy" in done.stderr
