"""The soak: all kinds of runs in rotation, with random settings and seeds, for any length of time.

    ./hakmem test --soak MINUTES [--seed N]
    ./hakmem test --soak 5 --only KIND --seed N     repeats one run of that kind and seed

Each run has its own seed, which is printed with it and determines the run. The exit status is 1 when a run failed:
crashed, hung, lost contents, or used or kept more memory than its bound.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kinds  # noqa: E402
import running  # noqa: E402


def parse(arguments):
    parser = argparse.ArgumentParser(prog="hakmem test --soak")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--builds", required=True, metavar="FLAVOR=FOLDER,...")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=sorted(kinds.KINDS), help="the one run that --seed is of")
    options = parser.parse_args(arguments)
    if options.only and options.seed is None:
        parser.error("--only needs --seed")
    return options


def one(soak, kind, seed, began):
    """Returns whether the run was good, and prints a line about it."""
    start = time.monotonic()
    try:
        peak = kinds.KINDS[kind][1](soak, random.Random(f"{kind} {seed}"))
        outcome = f"ok, at most {peak // running.MIB} MiB"
    except (running.Failure, AssertionError) as failure:
        outcome = f"FAILED: {failure}"
    now = time.monotonic()
    minutes, seconds = divmod(int(now - began), 60)
    print(f"[{minutes:3}:{seconds:02}] {kind} --seed {seed}: {outcome}, {now - start:.0f} s", flush=True)
    return outcome.startswith("ok")


def summary(counts, failed, skipped):
    for kind, count in counts.items():
        print(f"  {kind:14} {count:4} runs, {sum(kind == other for other, _ in failed)} failed")
    for kind in skipped:
        print(f"  {kind:14} not run: what it needs is not installed")
    for kind, seed in failed:
        print(f"again: ./hakmem test --soak 5 --only {kind} --seed {seed}")
    print(f"soak: {sum(counts.values())} runs, {len(failed)} failed")


def main():
    options = parse(sys.argv[1:])
    flavors = {name: Path(folder) for name, _, folder in (part.partition("=") for part in options.builds.split(","))}
    began, counts, failed = time.monotonic(), {}, []
    master = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 40)
    with tempfile.TemporaryDirectory(prefix="hakmem-soak-") as folder:
        soak = kinds.Soak(flavors, Path(folder), sys.executable)
        if options.only:
            return 0 if one(soak, options.only, options.seed, began) else 1
        here = [kind for kind, (_, _, can) in kinds.KINDS.items() if can()]
        skipped = [kind for kind in kinds.KINDS if kind not in here]
        print(f"soak: {options.minutes:g} minutes, seed {master}; not installed: {', '.join(skipped) or 'nothing'}",
              flush=True)
        chance = random.Random(master)
        turns = []
        while time.monotonic() < began + 60 * options.minutes:
            if not turns:
                turns = [kind for kind in here for _ in range(kinds.KINDS[kind][0])]
                chance.shuffle(turns)
            kind, seed = turns.pop(), chance.randrange(1 << 40)
            counts[kind] = counts.get(kind, 0) + 1
            if not one(soak, kind, seed, began):
                failed.append((kind, seed))
            for file in Path(folder).glob("*-[0-9]*"):
                file.unlink(missing_ok=True)
    summary(counts, failed, skipped)
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    sys.exit(main())
