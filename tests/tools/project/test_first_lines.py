"""Protects the first lines of tests: each file of tests says there, in one sentence, what it protects."""

import os
import re
from pathlib import Path

import blackbox
from test_test_stages import test_stages

TESTS = blackbox.REPOSITORY / "tests"
FIRST_LINE = re.compile(r'(?:"""|/\* )Protects .+\.(?: |$|"""$)')


def sources_of_programs():
    """The sources with the main functions of the programs in tests/ that ctest runs by themselves."""
    sources = {path.stem: path for path in TESTS.rglob("*.c")}
    build = os.environ["HAKMEM_BUILD_DIR"]
    words = {word for test in test_stages.tests_of(build) for word in test.get("command", ())}
    names = {re.sub(r"^fuzz_|_mutant_.*$|_one_cpu$", "", Path(word).name) for word in words
             if word.startswith(f"{build}/bin/")}
    return [sources[name] for name in names if name in sources]


def test_first_lines():
    files = {path for path in TESTS.rglob("test_*") if path.suffix in (".py", ".c")}
    programs = sources_of_programs()
    assert {"bounds.c", "calls.c", "mf2.c", "stress.c", "test_lock.c"} <= {path.name for path in programs}
    files |= {*programs, *TESTS.rglob("check_exports.py")}
    assert len(files) > 200
    wrong = [str(path.relative_to(TESTS)) for path in sorted(files)
             if not FIRST_LINE.match(path.read_text().split("\n", 1)[0])]
    assert wrong == []
