"""Protects tools/count_tests.py: it counts a test as passed only if it ran and succeeded."""

import subprocess
import sys

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "tools/count_tests.py"


def count(tmp_path, *statuses):
    files = []
    for number, row in enumerate(statuses):
        path = tmp_path / f"flavor{number}" / "ctest.xml"
        path.parent.mkdir()
        cases = "".join(f'<testcase name="t{n}" status="{status}"/>' for n, status in enumerate(row))
        path.write_text(f"<testsuite>{cases}</testsuite>")
        files.append(path)
    result = subprocess.run([sys.executable, str(SCRIPT), *map(str, files)], capture_output=True, text=True)
    return result.returncode, result.stdout.splitlines()


def test_all_passed(tmp_path):
    assert count(tmp_path, ["run", "run"], ["run"]) == (0, ["3 passed, 0 failed"])


@pytest.mark.parametrize("status", ["fail", "notrun", "disabled"])
def test_anything_else_failed(tmp_path, status):
    assert count(tmp_path, ["run"], ["run", status]) == (1, ["failed: flavor1: t1", "2 passed, 1 failed"])


def test_no_test_is_a_failure(tmp_path):
    assert count(tmp_path, [], []) == (1, ["0 passed, 0 failed"])
