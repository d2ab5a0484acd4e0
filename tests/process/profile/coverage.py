#!/usr/bin/env python3
"""coverage.py LIBRARY PATTERNS SEEDS: runs the program PATTERNS (patterns.c) under LIBRARY with the heap profile at its
default rate, as often as there are seeds. Prints as CSV how far `hakmem heap` is from the truth.

For each pattern and figure: the mean of the truth, the mean of the figure's ratio to it, the interval's mean half in
per cent of the truth, and how often an interval holds the truth in per cent: of the sum over all sites, and of single
sites. The sum at the peak is counted without samples: its half is the largest distance from the truth, and it is held
if it is true to 2 % and 16 KiB."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RATE = 512 * 1024
NONE = 3 * RATE  # a site without a sample has less, with 95 % confidence
BESIDE = 16 << 10  # what a process has in use beside its pattern's blocks, and what a look may miss (Z10)
FIGURES = {"allocated": ("alloc_space", 0), "in use": ("inuse_space", 2), "peak": ("peak_space", 3)}


def measured(library, program, pattern, seed, folder):
    """Returns the truth, and what the command says: {site: {kind: (value, half)}}, where `all` is the sum."""
    path = f"{folder}/heap.gz"
    lines = subprocess.run([program, pattern, str(seed)], stdout=subprocess.PIPE, text=True, check=True,
                           env={**os.environ, "LD_PRELOAD": library, "HAKMEM_HEAP_PROFILE": path}).stdout.splitlines()
    truth = {name: list(map(int, rest)) for name, *rest in map(str.split, lines)}
    told = json.loads(subprocess.run([str(ROOT / "hakmem"), "heap", "--json", path], stdout=subprocess.PIPE,
                                     check=True).stdout)
    kinds = [kind for kind, _ in FIGURES.values()]
    sites = {site["name"]: {kind: (site["flat"][kind], site["flat_error"][kind]) for kind in kinds}
             for site in told["sites"]}
    sites["all"] = {kind: (told["totals"][kind], told["totals_error"][kind]) for kind in kinds}
    return truth, sites


def main(library, program, seeds):
    patterns = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    held_of = {figure: [[], []] for figure in FIGURES}
    print("pattern,figure,truth_bytes,ratio,half_percent,held_percent,sites,held_percent_sites")
    with tempfile.TemporaryDirectory() as folder:
        for pattern in patterns:
            runs = [measured(library, program, pattern, seed, folder) for seed in range(1, int(seeds) + 1)]
            for figure, (kind, place) in FIGURES.items():
                totals, parts, truths, ratios, halves = [], [], [], [], []
                for truth, sites in runs:
                    for name, values in truth.items():
                        value, half = sites.get(name, {}).get(kind, (0, 0))
                        held = abs(value - values[place]) <= (half if value or half else NONE) + 1
                        (totals if name == "all" else parts).append(held)
                    value, half = sites["all"][kind]
                    truths.append(truth["all"][place])
                    if truths[-1]:
                        ratios.append(value / truths[-1])
                        halves.append(abs(ratios[-1] - 1) if figure == "peak" else half / truths[-1])
                if not ratios:
                    continue
                if figure == "peak":
                    totals = [abs(ratio - 1) * truth <= 0.02 * truth + BESIDE
                              for ratio, truth in zip(ratios, filter(None, truths), strict=True)]
                for place_of, held in zip(held_of[figure], (totals, parts), strict=True):
                    place_of.extend(held)
                half = max(halves) if figure == "peak" else statistics.mean(halves)
                truth, ratio, held = map(statistics.mean, (truths, ratios, totals))
                print(f"{pattern},{figure},{truth:.0f},{ratio:.4f},{100 * half:.2f},{100 * held:.1f},{len(parts)},"
                      f"{100 * statistics.mean(parts):.1f}", flush=True)
    for figure, (totals, parts) in held_of.items():
        print(f"all,{figure},,,,{100 * statistics.mean(totals):.1f},{len(parts)},{100 * statistics.mean(parts):.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
