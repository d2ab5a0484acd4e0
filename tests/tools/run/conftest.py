"""Fixtures of the tests of `hakmem run`."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
SCRIPT = blackbox.REPOSITORY / "hakmem"


@pytest.fixture(scope="session")
def counts(compiled):
    """A program that makes as many calls of malloc as its argument says."""
    return compiled(Path(__file__).parent / "counts.c")


def launch(*arguments, env=None, prefix=(), **more):
    """`./hakmem run ARGUMENTS`. test_run_same.py compares an installation's command with it."""
    return blackbox.run([*prefix, SCRIPT, "run", *arguments], env={
        "HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}, **more)


def statistics(stderr):
    """The JSON documents in the output."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := stderr.find('{"hakmem":', at)) >= 0:
        document, at = decoder.raw_decode(stderr, at)
        found.append(document)
    return found


@pytest.fixture
def open_folder():
    """A folder that others may read. pytest closes its own folders to others at the start of each session."""
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def by_nobody():
    """by_nobody(ARGUMENTS) is `hakmem run ARGUMENTS` by another user, who may not look into the checkout. hakmem-run and
    the library lie in a folder of their own."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory(prefix="hakmem-nobody-") as made:
        for file in ("bin/hakmem-run", "lib/libhakmem.so"):
            copy = Path(made, file)
            copy.parent.mkdir()
            shutil.copy(BUILD / file, copy)
        for folder in (made, f"{made}/bin", f"{made}/lib"):
            os.chmod(folder, 0o755)

        def run(*words, prefix=()):
            return blackbox.run([*prefix, f"{made}/bin/hakmem-run", "run", *words], user="nobody", cwd="/")

        yield run
