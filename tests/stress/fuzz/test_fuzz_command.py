"""Protects `hakmem fuzz`: libFuzzer builds and runs, continues from what it found, and tries a single file."""

import os
import re
import subprocess

import blackbox

FUZZ = blackbox.REPOSITORY / "build/fuzz"
CORPUS = blackbox.REPOSITORY / "tests/stress/fuzz/corpus"


def fuzz(*arguments):
    """The first call builds the flavor fuzz."""
    command = [blackbox.REPOSITORY / "hakmem", "fuzz", *map(str, arguments)]
    return subprocess.run(command, env=blackbox.environment(), capture_output=True, text=True,
                          timeout=2 * blackbox.HANG, check=False)


def test_libfuzzer_runs_from_the_corpus():
    done = fuzz("maps", "-runs=500")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Done \d+ runs", done.stderr)
    found = re.search(r"seed corpus: files: (\d+)", done.stderr)
    assert int(found[1]) >= len(os.listdir(CORPUS / "maps"))


def test_every_target_is_built_and_has_a_corpus():
    done = fuzz("maps", "-runs=1")
    assert done.returncode == 0, done.stdout + done.stderr
    targets = [
        path.name.removeprefix("fuzz_") for path in (FUZZ / "bin/fuzz").iterdir() if path.name.startswith("fuzz_")
    ]
    assert {"calls", "maps", "options", "procfs", "recording", "trace"} <= set(targets)
    for name in ("calls", "maps", "options", "procfs", "recording", "trace"):
        file = sorted((CORPUS / name).iterdir())[0]
        done = fuzz(name, file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Executed {file}" in done.stderr
