#!/usr/bin/env python3
"""Prints which share of each real program's CPU time is spent in the allocator's code, and which in page faults.

    bench/share.py ROW... > bench/results/DATE-shares.csv

Runs `hakmem bench` once for each row under perf, which samples the CPU clock of all its processes. Those that never ran
the allocator are left out. `faults` includes the kernel's whole work for page faults, of the program's own files too."""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FREQUENCY = 1999


def ask(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout


def samples(data, *options):
    """Returns {(process, place): samples} of a report."""
    found = {}
    for line in ask("perf", "report", "-i", data, "--stdio", "-g", "none", "-F", "sample,comm," + options[0], "-t", ";",
                    "--no-children", *options[1:]).splitlines():
        parts = [part.strip() for part in line.split(";")]
        if len(parts) == 3 and parts[0].isdigit():
            found[parts[1], parts[2]] = found.get((parts[1], parts[2]), 0) + int(parts[0])
    return found


def measure(row, folder):
    """Returns the shares of a row: the allocator, page faults, the kernel in all; and the samples."""
    data = Path(folder, "perf.data")
    subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "-g", "-o", data,
                    CHECKOUT / "hakmem", "bench", "--rows", f"^{row}$", "--rounds", "1", "--allocators", "hakmem",
                    "--no-calls", "--no-idle", "--warm", "0", "--out", folder],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    by_file = samples(data, "dso")
    processes = {process for process, file in by_file if file.startswith("libhakmem.so")}
    total = sum(count for (process, _), count in by_file.items() if process in processes)
    if not total:
        raise SystemExit(f"{row}: perf has no samples of the allocator")
    faults = samples(data, "parent", "-p", "exc_page_fault")

    def share(of, what):
        return sum(count for (process, place), count in of.items() if process in processes and what in place) / total

    return [f"{share(by_file, 'libhakmem.so'):.4f}", f"{share(faults, 'exc_page_fault'):.4f}",
            f"{share(by_file, 'kernel'):.4f}", total]


def main():
    writer = csv.writer(sys.stdout)
    writer.writerow(["row", "allocator", "faults", "kernel", "samples"])
    for row in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            writer.writerow([row, *measure(row, folder)])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
