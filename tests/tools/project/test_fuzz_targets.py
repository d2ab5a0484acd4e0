"""Protects the flavor fuzz: the targets for libFuzzer build, and run the committed inputs."""

import blackbox
import machine

CORPUS = blackbox.REPOSITORY / "tests/stress/fuzz/corpus"


def test_targets_build_and_run_the_corpus(tmp_path):
    machine.require("program:clang", "fixed-addresses")
    cache = blackbox.compile_cache(blackbox.REPOSITORY)
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if cache else []
    blackbox.call("cmake", "-S", blackbox.REPOSITORY, "--preset", "fuzz", "-B", tmp_path / "build", *launcher, **cache)
    blackbox.call("cmake", "--build", tmp_path / "build", "--target", "fuzz_targets", **cache)
    targets = sorted((tmp_path / "build/bin/fuzz").iterdir())
    assert targets
    for target in targets:
        folder = tmp_path / target.name
        folder.mkdir()
        # No input is made up, so chance has no part in it. clang 14's AddressSanitizer has no room at some of the
        # addresses that the kernel chooses. libFuzzer writes to its first folder.
        blackbox.call("setarch", "--addr-no-randomize", target, "-runs=0", f"-artifact_prefix={folder}/", folder,
                      CORPUS / target.name.removeprefix("fuzz_"))
