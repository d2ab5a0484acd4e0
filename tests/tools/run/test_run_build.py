"""Protects `hakmem build cycles`: it builds the libraries and all programs, and `hakmem run --profile` takes them."""

import sys

from test_run_for_real import BUILD_SECONDS, SCRIPT, cycles_of

import blackbox


def test_build_cycles(counts):
    result = blackbox.run([SCRIPT, "build", "cycles"], timeout=BUILD_SECONDS)
    assert result.status == 0 and "built in build/cycles/lib and build/cycles/bin" in result.stderr, result.report()
    folder = blackbox.REPOSITORY / "build/cycles"
    assert (folder / "bin/bench_random_mixed").exists()
    result = blackbox.run([sys.executable, "-m", "hakmem", "run", "--profile", "--", counts, 20000],
                          env={"HAKMEM_BUILD_DIR": str(folder)})
    assert result.status == 0, result.report()
    assert 20000 < cycles_of(result.stderr)[0] < 20100
