"""Protects the flavor fuzz: the targets for libFuzzer build. The other flavors replay the committed inputs."""

import blackbox
import machine


def test_targets_build(tmp_path):
    machine.require("program:clang")
    cache = blackbox.compile_cache(blackbox.REPOSITORY)
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if cache else []
    blackbox.call("cmake", "-S", blackbox.REPOSITORY, "--preset", "fuzz", "-B", tmp_path / "build", *launcher, **cache)
    blackbox.call("cmake", "--build", tmp_path / "build", "--target", "fuzz_targets", **cache)
    assert (tmp_path / "build/bin/fuzz/fuzz_calls").is_file()
