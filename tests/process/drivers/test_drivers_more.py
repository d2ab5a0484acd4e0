"""Protects the drivers of scenarios, large blocks, MF2, fork and start-up, by the rules of test_drivers.py."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
WRONG = blackbox.REPOSITORY / "tests/tools/bench/overlapping_malloc.c"
SEED = 7


@dataclass(frozen=True)
class Driver:
    """A small run: `command` without its seed, and the number of operations if the arguments determine it. `names`:
    what --help mentions."""

    name: str
    command: tuple
    seed: tuple
    operations: int | None
    names: tuple

    def with_seed(self, seed):
        return [BIN / self.command[0], *self.command[1:], *self.seed, seed]


def scenario(name, iterations, operations=None):
    return Driver(f"allocators-{name}", ("bench_allocators", "--scenario", name, "--iterations", iterations),
                  ("--seed",), operations, ("--scenario", "--iterations", "--seed", name))


DRIVERS = [
    scenario("json-trees", 60),
    scenario("mir-arenas", 40),
    scenario("mixed-octaves", 20000),
    scenario("string-parts", 40000),
    Driver("large", ("bench_large", 3000, 40, 32, 1024), (), None,
           ("ITERATIONS", "LIVE", "MIN_KIB", "MAX_KIB", "SEED", "TOUCH")),
    Driver("mf2", ("bench_mf2", 4, 1500, 4), (), 4 * 1500 * 4 * 2, ("THREADS", "BLOCKS", "GENERATIONS", "SEED")),
    Driver("mf2-alone", ("bench_mf2", 1, 4000, 3), (), 4000 * 3 * 2, ("THREADS",)),
    Driver("fork", ("bench_fork", 8, 5, 200), (), 5 * (4 * 200 + 64), ("MIB", "CHILDREN", "CHANGES", "SEED")),
    # The last one: it makes too few calls for the wrong allocator to fail.
    Driver("big-64MiB", ("bench_big", 20, 4, 1024, 65536), (), None, ("MIN_KIB", "MAX_KIB")),
]
each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=[driver.name for driver in DRIVERS])


def outcome(command, preload=None):
    """The pairs of the RESULT line, after sanity checks."""
    done = blackbox.run(command, preload=preload)
    assert done.status == 0, done.report()
    [line] = re.findall(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith(f"RESULT {line}\n")
    pairs = dict(pair.split("=") for pair in line.split())
    assert int(pairs["ops"]) > 0 and float(pairs["seconds"]) > 0 and float(pairs["ns_per_op"]) > 0
    assert float(pairs["user_s"]) >= 0 and float(pairs["sys_s"]) >= 0
    assert int(pairs["soft_faults"]) > 0 and int(pairs["hard_faults"]) >= 0
    assert 500 < int(pairs["rss_peak_kib"]) < 1 << 20
    return pairs


def linked(command):
    return [Path(f"{command[0]}_hakmem"), *command[1:]]


def work(pairs):
    """What identifies an amount of work: operations, and the checksum if it is printed."""
    return int(pairs["ops"]), pairs.get("checksum")


@each_driver
def test_same_work_on_any_allocator(library, driver):
    command = driver.with_seed(SEED)
    done = {
        "system": work(outcome(command)),
        "preloaded": work(outcome(command, preload=library)),
        "linked": work(outcome(linked(command))),
    }
    assert len(set(done.values())) == 1, done
    assert driver.operations in (None, done["system"][0])


@pytest.mark.parametrize("driver", DRIVERS[:4], ids=lambda driver: driver.name)
def test_another_seed_is_other_work(driver):
    assert len({work(outcome(driver.with_seed(seed))) for seed in (1, 2, 3)}) == 3


@pytest.mark.parametrize("driver", DRIVERS[:-1], ids=lambda driver: driver.name)
def test_a_wrong_allocator_is_noticed(compiled, driver):
    wrong = compiled(WRONG, "-pthread", shared=True)
    done = blackbox.run(driver.with_seed(SEED), preload=wrong)
    assert done.status == 1, done.report()
    assert re.search(r"lost its contents", done.stderr), done.report()


@each_driver
def test_help_names_the_arguments(driver):
    done = blackbox.run([BIN / driver.command[0], "--help"])
    assert done.status == 0, done.report()
    assert all(name in done.stdout for name in driver.names), done.report()


@pytest.mark.parametrize("command, named", [
    (["bench_allocators"], "--scenario"),
    (["bench_allocators", "--scenario", "xml"], "xml"),
    (["bench_allocators", "--scenario", "json", "--iterations", "-1"], "--iterations"),
    (["bench_allocators", "--scenario", "json", "--seed", "x"], "--seed"),
    (["bench_allocators", "--scenario", "json", "5"], "'5'"),
    (["bench_allocators", "--scenario"], "scenario"),
    (["bench_allocators", "--nothing"], "nothing"),
    (["bench_large", "1", "0"], "LIVE"),
    (["bench_large", "1", "1", "64", "32"], "MAX_KIB"),
    (["bench_large", "1", "1", "64", "128", "1", "101"], "TOUCH"),
    (["bench_large", "1", "1", "1", "1", "1", "1", "1"], "usage"),
    (["bench_mf2", "0"], "THREADS"),
    (["bench_mf2", "1", "x"], "BLOCKS"),
    (["bench_mf2", "1", "1", "-1"], "GENERATIONS"),
    (["bench_fork", "x"], "MIB"),
    (["bench_fork", "1", ""], "CHILDREN"),
    (["bench_spawn", "x"], "STARTS"),
    (["bench_spawn", "1", "true", "false"], "usage"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_wrong_arguments_are_named(command, named):
    done = blackbox.run([BIN / command[0], *command[1:]])
    assert done.status == 2, done.report()
    assert named in done.stderr and command[0] in done.stderr


@pytest.mark.parametrize("command", [
    ["bench_large", 500, 7, 3, 3, SEED, 100],
    ["bench_large", 500, 7, 33, 1000, SEED, 100],
    ["bench_large", 500, 7, 33, 1000, SEED, 0],
    ["bench_fork", 1, 3, 50, SEED],
    ["bench_mf2", 2, 501, 3, SEED],
], ids=lambda command: " ".join(map(str, command)))
def test_arguments_at_their_edges(library, command):
    outcome([BIN / command[0], *command[1:]], preload=library)


def test_fork_counts_the_children():
    """A child copies more pages of a large heap when it changes more of it."""
    few = outcome([BIN / "bench_fork", 32, 4, 20, SEED])
    many = outcome([BIN / "bench_fork", 32, 4, 2000, SEED])
    assert int(many["child_faults"]) > int(few["child_faults"]) + 500
    assert int(many["soft_faults"]) > 4 * int(many["child_faults"])


@pytest.mark.parametrize("preloaded", [False, True])
def test_spawn_starts_the_program_with_the_preload(library, tmp_path, preloaded):
    script = tmp_path / "started"
    script.write_text(f'#!/bin/sh\necho "${{LD_PRELOAD:-none}}" >>{tmp_path}/log\n')
    script.chmod(0o755)
    pairs = outcome([BIN / "bench_spawn", 3, script], preload=library if preloaded else None)
    assert pairs["ops"] == "3"
    assert (tmp_path / "log").read_text().splitlines() == [str(library) if preloaded else "none"] * 3


@pytest.mark.parametrize("program, said", [("false", "status 1"), ("/nowhere/program", "/nowhere/program")])
def test_spawn_says_what_went_wrong(program, said):
    done = blackbox.run([BIN / "bench_spawn", 2, program])
    assert done.status == 1, done.report()
    assert said in done.stderr and "PROGRAM" in done.stderr
