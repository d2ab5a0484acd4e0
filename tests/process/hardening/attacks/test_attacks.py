"""Protects against classic attacks on metadata: expected.txt (each build) and docs/dev/attacks.md say how each ends."""

import re
import sys

import pytest

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.bench import misuse  # noqa: E402

UPDATE = "if the change is meant: build/venv/bin/python tests/process/hardening/suite/expect.py --update, and change docs/dev/attacks.md"
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| `([^`]+)` \| [^|]+ \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return misuse.compile_attacks(tmp_path_factory.mktemp("attacks"))


BUILDS = misuse.own_builds(blackbox.LIBRARY)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_each_attack(program, build):
    expected = misuse.read_attacks()
    assert build.name in expected, f"expected.txt has no column for {build.name}; {UPDATE}"
    found = misuse.run_attacks(program, build)
    for _ in range(3):  # as SETTLINGS in suite/test_suite.py
        found = misuse.settle_attacks(program, build, expected[build.name], found)
    assert len(found) >= 20
    told = misuse.differences(expected[build.name], found)
    assert not told, "\n".join([f"{build.name}: {UPDATE}", *told])


def test_the_page_says_what_is_so():
    page = (misuse.paths.CHECKOUT / "docs/dev/attacks.md").read_text()
    assert dict(ROW.findall(page)) == misuse.read_attacks()["default"]


def test_the_attacks_are_real(program):
    """Some attacks succeed on glibc, for which they were made, and it stops some: so the programs do carry them out. Which
    of the two depends on its version."""
    found = misuse.run_attacks(program, misuse.Build("glibc", None))
    met = (misuse.ON, misuse.LATE, misuse.CALL, misuse.LATER)
    assert sum(outcome in met for outcome in found.values()) >= 10, found
