"""Protects make and scripts/larson.sh: each program lies beside the Makefile; EXTRA_CFLAGS have their effect."""

import json
import os
import re
import shutil
import subprocess

import blackbox
import pytest

# Names that the source documents type.
NAMES = [*(f"{program}_{allocator}" for program in ("bench_random_mixed", "larson", "bench_allocators")
           for allocator in ("hakmem", "system", "mi")), "bench_tiny_mt", "test_mf2"]
ENV = {name: value for name, value in os.environ.items()
       if name not in ("MAKEFLAGS", "MAKELEVEL", "CFLAGS", "HAKMEM_PEERS_DIR")}
RANDOM_MIXED = ("1000", "256", "42")


class Checkout:
    """A copy, because the checkout's own build is under test."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**ENV, **blackbox.compile_cache(folder)}
        shutil.copytree(blackbox.REPOSITORY, folder,
                        ignore=shutil.ignore_patterns("build", "dist", ".git", "results", "target"))

    def call(self, *argv, **env):
        return subprocess.run(argv, cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True,
                              timeout=blackbox.HANG, check=False)

    def make(self, *words, **env):
        done = self.call("make", *words, **env)
        assert done.returncode == 0, done.stdout + done.stderr

    def links(self):
        return {path.name: str(path.readlink()) for path in self.folder.iterdir() if path.is_symlink()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Checkout(tmp_path_factory.mktemp("make") / "checkout")


def result(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(pair.split("=") for pair in re.search(r"^RESULT (.*)$", done.stdout, re.M)[1].split())


def test_programs_lie_beside_the_makefile(checkout, library):
    """The library under test stands in for mimalloc: a program that runs on it prints HAKMEM's settings."""
    checkout.make(*NAMES, "BUILD_FLAVOR=release", f"MIMALLOC={library}")
    assert checkout.links() == {name: f"build/release/bin/{name.removesuffix('_system')}" for name in NAMES} | {
        "bench_tiny_mt": "build/release/bin/bench_tiny_mt_hakmem", "test_mf2": "build/release/bin/test_mf2_hakmem"
    }
    for allocator, on_hakmem in (("hakmem", True), ("system", False), ("mi", True)):
        done = checkout.call(f"./bench_random_mixed_{allocator}", *RANDOM_MIXED, HAKMEM_VERBOSE="1")
        assert result(done)["ops"] == "1000"
        assert ("HAKMEM_FC_CAP" in done.stderr) == on_hakmem
    assert result(checkout.call("./test_mf2", "10"))["owner_frees"] == "50"
    git = shutil.which("git")
    ignored = subprocess.run([git, "check-ignore", *NAMES], cwd=blackbox.REPOSITORY, capture_output=True, text=True,
                             check=False)
    assert ignored.stdout.split() == NAMES
    checkout.make("clean", f"MIMALLOC={library}")
    assert checkout.links() == {} and not (checkout.folder / "build/release/bin/test_mf2_hakmem").exists()


def test_without_mimalloc_make_says_what_makes_it(checkout):
    done = checkout.call("make", "larson_mi")
    assert done.returncode != 0 and "hakmem peers build mimalloc2" in done.stdout + done.stderr
    assert "larson_mi" not in checkout.links()


def test_extra_cflags(checkout):
    def options_after(*arguments):
        checkout.make("bench_common", *arguments)
        commands = json.loads((checkout.folder / "build/release/compile_commands.json").read_text())
        return next(entry["command"] for entry in commands if entry["file"].endswith("drivers/common.c"))

    assert (options := options_after("EXTRA_CFLAGS=-DFIRST_X=1 -DSECOND_X=two")).endswith("drivers/common.c")
    assert " -DFIRST_X=1 -DSECOND_X=two " in options and " -O2 " in options
    assert "_X" not in options_after()
    done = checkout.call("make", "bench_common", "EXTRA_CFLAGS=-fno-such-option")
    assert done.returncode != 0 and "-fno-such-option" in done.stdout + done.stderr


def test_the_whole_program_optimised(checkout):
    checkout.make("bench_random_mixed_hakmem", "EXTRA_CFLAGS=-O3 -march=native -flto")
    assert result(checkout.call("./bench_random_mixed_hakmem", *RANDOM_MIXED))["ops"] == "1000"


def test_debug_counters_in_a_release_build(checkout):
    checkout.make("bench_random_mixed_hakmem", "EXTRA_CFLAGS=-DHAKMEM_DEBUG_COUNTERS=1")
    done = checkout.call("./bench_random_mixed_hakmem", *RANDOM_MIXED, HAKMEM_DEBUG_COUNTERS="1")
    assert result(done)["ops"] == "1000"
    counters = dict(re.findall(r"^hakmem: (\w+) +(\d+)  \w", done.stderr, re.M))
    assert int(counters["refill_pool"]) > 0 and int(counters["mf2_new_page"]) > 0, done.stderr


@pytest.mark.parametrize("build, asked, carried", [("RELEASE", None, 0), ("RELEASE", 1, 1), ("DEBUG", None, 1),
                                                   ("DEBUG", 0, 0)])
def test_which_builds_carry_debug_counters(compiled, tmp_path, build, asked, carried):
    source = tmp_path / "carried.c"
    source.write_text('#include "base/base.h"\nint main(void) { return HAK_DEBUG_COUNTERS; }\n')
    flags = [f"-DHAKMEM_BUILD_{build}=1", *([] if asked is None else [f"-DHAKMEM_DEBUG_COUNTERS={asked}"])]
    assert blackbox.run([compiled(source, f"-I{blackbox.REPOSITORY}/src", *flags)]).status == carried


def test_the_cycles_build_prints_the_documents_four(checkout):
    checkout.make("larson_hakmem", "BUILD_FLAVOR=cycles")
    assert checkout.links()["larson_hakmem"] == "build/cycles/bin/larson_hakmem"
    done = checkout.call("./larson_hakmem", "0", "8", "128", "1024", "1", "12345", "4", "20", HAKMEM_TINY_PROFILE="1")
    assert int(result(done)["ops"]) == 2 * 1024 * 4 * 20
    rows = dict(re.findall(r"^hakmem: (malloc|free|refill|migration) +(\d+) ", done.stderr, re.M))
    assert rows.keys() == {"malloc", "free", "refill", "migration"}
    assert int(rows["malloc"]) >= 1024 * 4 * 20 <= int(rows["free"]) and int(rows["refill"]) > 0


@pytest.mark.parametrize("profile, arguments", [("single", "8 128 1024 1 12345 1"), ("4t", "8 128 1024 1 12345 4"),
                                                ("tiny", "8 64 1024 1 12345 4")])
def test_larson_by_profile(checkout, library, profile, arguments):
    done = checkout.call("scripts/larson.sh", profile, LARSON_SECONDS="1", MIMALLOC=str(library))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"(larson_\w+) 1 " + arguments, done.stdout) == ["larson_hakmem", "larson_system", "larson_mi"]
    assert len(re.findall(r"^RESULT name=larson ops=[1-9]", done.stdout, re.M)) == 3


def test_larson_with_debug_counters(checkout):
    done = checkout.call("scripts/larson.sh", "counters", LARSON_SECONDS="1")
    assert int(result(done)["ops"]) > 0
    assert re.search(r"^hakmem: refill_pool +[1-9]", done.stderr, re.M), done.stderr


def test_larson_says_what_it_does_not_know(checkout):
    done = checkout.call("scripts/larson.sh", "nosuch")
    assert done.returncode == 2 and "nosuch" in done.stderr and "counters" in done.stderr
    without = checkout.call("scripts/larson.sh", LARSON_SECONDS="1")
    assert without.returncode == 0 and without.stdout.count("RESULT") == 2
    assert "peers build mimalloc2" in without.stdout
