"""Protects make with EXTRA_CFLAGS: the options reach the compiler, and the next make without them drops them."""

import json
import os
import shutil
import subprocess

import blackbox


def test_extra_cflags(tmp_path):
    """Runs in a copy, because the checkout's own build is under test."""
    copy = tmp_path / "checkout"
    shutil.copytree(blackbox.REPOSITORY, copy, ignore=shutil.ignore_patterns("build", "dist", ".git",
                                                                             "results", "target"))
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "CFLAGS")}

    def options_after(*arguments):
        done = subprocess.run(["make", "-C", copy, "bench_common", *arguments], env=env, capture_output=True, text=True,
                              timeout=blackbox.HANG, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        commands = json.loads((copy / "build/release/compile_commands.json").read_text())
        return next(entry["command"] for entry in commands if entry["file"].endswith("drivers/common.c"))

    assert (options := options_after("EXTRA_CFLAGS=-DFIRST_X=1 -DSECOND_X=two")).endswith("drivers/common.c")
    assert " -DFIRST_X=1 -DSECOND_X=two " in options and " -O2 " in options
    assert "_X" not in options_after()
    done = subprocess.run(["make", "-C", copy, "bench_common", "EXTRA_CFLAGS=-fno-such-option"], env=env,
                          capture_output=True, text=True, timeout=blackbox.HANG, check=False)
    assert done.returncode != 0 and "-fno-such-option" in done.stdout + done.stderr
