#!/usr/bin/env python3
"""Runs the misuse suite and the attacks on the builds of this tree and compares what they do with expected.txt.

  expect.py                     tells what differs; exit status 1 if anything does
  expect.py --update            writes what was found, and docs/dev/misuse-table.md
  expect.py --build default     this build only (default, secure)

A change of behaviour, to the better too, is a change of expected.txt in the same commit.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "python"))

from hakmem.bench import misuse  # noqa: E402

COMMENT = ("What each build does with each case. expect.py --update writes it; tests/process/hardening asserts it.",)
ROUNDS = 40


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write what is found")
    parser.add_argument("--build", action="append", metavar="NAME", help="only this build")
    parser.add_argument("--library", type=Path, help="the default build's library; default: the release build's")
    parser.add_argument("--rounds", type=int, default=None,
                        help=f"runs of each case; default: 1, {ROUNDS} with --update")
    chosen = parser.parse_args()

    table, attacks = misuse.read_table(misuse.EXPECTED), misuse.read_attacks()
    failed = False
    with tempfile.TemporaryDirectory(prefix="hakmem-misuse-") as folder:
        programs, attacker = misuse.compile_suite(folder), misuse.compile_attacks(folder)
        for build in misuse.own_builds(chosen.library):
            if chosen.build and build.name not in chosen.build:
                continue
            begin = time.monotonic()
            rounds = chosen.rounds or (ROUNDS if chosen.update else 1)
            expected, found = table.get(build.name, {}), misuse.run_suite(programs, build, rounds=rounds)
            attacks_expected, attacked = attacks.get(build.name, {}), misuse.run_attacks(attacker, build, rounds=rounds)
            if not chosen.update:
                found = misuse.settle_suite(programs, build, expected, found)
                attacked = misuse.settle_attacks(attacker, build, attacks_expected, attacked)
            told = misuse.differences(expected, found) + misuse.differences(attacks_expected, attacked)
            stopped, kept, of = misuse.totals(found)
            print(f"{build.name}: {stopped} of {of} stopped, {kept} kept from harm, {time.monotonic() - begin:.1f} s; "
                  f"{len(told)} differ from {misuse.EXPECTED.name}")
            attacks[build.name] = attacked
            for line in told:
                print(f"  {line}")
            failed |= bool(told)
            table[build.name] = found
    if chosen.update:
        misuse.write_table(misuse.EXPECTED, table, COMMENT)
        misuse.write_attacks(attacks)
        misuse.TABLE.write_text(misuse.page())
    elif failed:
        print("If the change is meant: python tests/process/hardening/suite/expect.py --update")
    return 1 if failed and not chosen.update else 0


if __name__ == "__main__":
    sys.exit(main())
