#!/usr/bin/env python3
"""Measures speed-up from 1 to 16 threads: ten drivers, every allocator of the bundle, eight minutes.

Needs Python 3.6 or newer and glibc 2.34 or newer, and no network. pack.py made the bundle. Prints tables as it goes, and
writes each run to results.csv. Beside each driver stand the speed-ups that `hakmem bench coherence` predicts, where one
of its patterns resembles the driver."""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
THREADS = (1, 2, 4, 8, 16)
RUN_SECONDS = 10
# {driver: its command, by threads and the share of the full work}. Each thread has the same work, in full a third of a
# second of a core.
DRIVERS = {
    "larson": lambda t, w: ["larson", 0, 8, 128, 512, 1, 12345, t, 0, int(4_000_000 * t * w)],
    "messages": lambda t, w: ["bench_producer_consumer", max(1, t // 2), int(20_000 * w), 42],
    "churn": lambda t, w: ["bench_thread_churn", int(2_000 * w) * t, 100, t, 42],
    "batches": lambda t, w: ["bench_batches", int(3_000 * w), "mixed", 1000, t, 42],
    "phases": lambda t, w: ["bench_phases", int(80 * w) or 1, t, 20_000, 0, 42],
    "tiny": lambda t, w: ["bench_tiny_mt", t, int(60_000_000 * w), 16, 100],
    "ring": lambda t, w: ["bench_ring", max(2, t), int(1_500_000 * w), 3, 42],
    "scratch": lambda t, w: ["bench_cache_scratch", t, int(200_000 * w), 8, 100, 42],
    "shbench": lambda t, w: ["bench_shbench", int(8_000 * w), 1000, t, 42],
    "mf2": lambda t, w: ["bench_mf2", max(2, t), 5_000, int(20 * w) or 1, 42],
}
LEAST = 0.02  # the least share of the full work
TRIED = 0.05  # the share of the work that says how long a round takes
RATE = re.compile(r"^RESULT .*\bops_per_s=(\d+)", re.MULTILINE)


def run_once(library, command):
    """Returns operations a second, or why there are none."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "HAKMEM_", "MALLOC_"))}
    if library:
        env["LD_PRELOAD"] = str(library)
    if library and library.name == "libtcmalloc.so":
        env["GLIBC_TUNABLES"] = "glibc.pthread.rseq=0"
    argv = [str(HERE / "bin" / command[0]), *map(str, command[1:])]
    try:
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS,
                              check=False)
    except subprocess.TimeoutExpired:
        return "too long"
    found = RATE.search(done.stdout.decode(errors="replace"))
    return int(found[1]) if done.returncode == 0 and found else f"status {done.returncode}"


def choose_work(library, threads, runs, seconds):
    """Returns the share of the full work with which so many runs of each driver take at most so many seconds."""
    begin = time.monotonic()
    for command in DRIVERS.values():
        run_once(library, command(threads, TRIED))
    return max(LEAST, min(1, TRIED * seconds / (runs * (time.monotonic() - begin))))


def read_predictions():
    """Returns {pattern: {allocator: {cores: speed-up}}} from what the coherence tool counted."""
    path = HERE / "predicted.csv"
    cycles = {}
    if path.exists():
        with path.open() as file:
            for row in csv.DictReader(file):
                if row.get("cycles"):
                    of = cycles.setdefault(row["pattern"], {}).setdefault(row["allocator"], {})
                    of[int(row["cores"])] = float(row["cycles"])
    return {pattern: {name: {cores: cores * of[min(of)] / of[cores] for cores in sorted(of)}
                      for name, of in allocators.items()} for pattern, allocators in cycles.items()}


def table(driver, rates, names, threads, predicted):
    """Returns a driver's lines: the rate of one thread, then speed-ups, with predicted ones in brackets."""
    lines = [f"{driver}: Mops/s of one thread; speed-up (predicted)",
             "  ".join(["".ljust(10), "1".rjust(8), *(str(number).rjust(13) for number in threads[1:])])]
    for name in names:
        base = rates.get((driver, threads[0], name))
        cells = [f"{statistics.median(base) / 1e6:8.2f}" if base else "-".rjust(8)]
        for number in threads[1:]:
            found = rates.get((driver, number, name))
            text = f"{statistics.median(found) / statistics.median(base):.2f}" if found and base else "-"
            guess = predicted.get(driver, {}).get(name, {}).get(number)
            cells.append((text + (f" ({guess:.1f})" if guess else "")).rjust(13))
        lines.append("  ".join([name.ljust(10), *cells]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rounds", type=int, help="so many rounds of the least work, however long they take")
    parser.add_argument("--threads", default=",".join(map(str, THREADS)))
    parser.add_argument("--out", type=Path, default=Path("results.csv"))
    options = parser.parse_args()
    threads = [int(word) for word in options.threads.split(",")]
    libraries = {"hakmem": HERE / "lib/libhakmem.so", "glibc": None}
    libraries.update((path.stem[3:], path) for path in sorted((HERE / "lib").glob("lib*.so"))
                     if path.stem != "libhakmem")
    end = time.monotonic() + 60 * options.minutes
    rates, rounds, round_took = {}, 0, 0.0
    names = list(libraries)
    work = LEAST if options.rounds else choose_work(libraries["hakmem"], max(threads), len(threads) * len(names),
                                                    60 * options.minutes / 2)
    print(f"{os.cpu_count()} CPUs; {', '.join(names)}; {work:.2f} of the full work", flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["round", "driver", "threads", "allocator", "ops_per_s"])
        # The ends of the curve first: what time leaves out is in the middle.
        ends = list(dict.fromkeys((threads[0], threads[-1])))
        plan = [(number, driver) for number in ends + [number for number in reversed(threads) if number not in ends]
                for driver in DRIVERS]
        while rounds < options.rounds if options.rounds else rounds == 0 or time.monotonic() + round_took < end:
            began = time.monotonic()
            for number, driver in plan:
                first = rounds % len(names)
                for name in names[first:] + names[:first]:
                    if not options.rounds and time.monotonic() >= end:
                        break
                    rate = run_once(libraries[name], DRIVERS[driver](number, work))
                    writer.writerow([rounds, driver, number, name, rate])
                    file.flush()
                    if isinstance(rate, int):
                        rates.setdefault((driver, number, name), []).append(rate)
            rounds += 1
            round_took = time.monotonic() - began
    predicted = read_predictions()
    print(f"{rounds} rounds")
    for driver in DRIVERS:
        print("\n" + table(driver, rates, names, threads, predicted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
