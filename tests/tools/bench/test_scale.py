"""Protects bench/scale: the bundle for a machine with more cores runs from its own files, and measures every driver."""

import csv
import subprocess
import sys
import tarfile

import blackbox
import tool

SCALE = blackbox.REPOSITORY / "bench/scale"


def test_bundle_runs_elsewhere(tmp_path):
    """Unpacked in another folder, each driver has a rate on HAKMEM and on the system's allocator with each number of
    threads."""
    bundle, results = tmp_path / "scale.tar.xz", tmp_path / "results.csv"
    subprocess.run([sys.executable, SCALE / "pack.py", bundle, "--build", tool.BUILD, "--peers", tmp_path], check=True,
                   stdout=subprocess.DEVNULL)
    with tarfile.open(bundle) as packed:
        packed.extractall(tmp_path)
    words = [sys.executable, tmp_path / "scale/run.py", "--threads", "1,2", "--rounds", "1", "--out", results]
    said = subprocess.run(words, check=True, capture_output=True, text=True, env=blackbox.environment()).stdout
    rows = list(csv.DictReader(results.open()))
    drivers = {row["driver"] for row in rows}
    assert {(row["driver"], row["threads"], row["allocator"]) for row in rows if row["ops_per_s"].isdigit()} == {
        (driver, threads, allocator) for driver in drivers for threads in "12" for allocator in ("glibc", "hakmem")}
    assert len(drivers) == 10 and all(driver in said for driver in drivers)
