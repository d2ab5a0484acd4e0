"""Protects tools/count_tests.py: it counts a test as passed only if it ran and succeeded, and says what was skipped."""

import subprocess
import sys

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "tools/count_tests.py"


def count(*paths):
    result = subprocess.run([sys.executable, SCRIPT, *paths], capture_output=True, text=True, check=False)
    *said, closing = result.stdout.splitlines()
    return result.returncode, closing, "\n".join(said)


@pytest.fixture
def stage(tmp_path):
    """stage({test: (status, what it printed)}) writes a stage's results and returns its folder."""

    def write(tests, name="unit"):
        folder = tmp_path / name
        (folder / "cases").mkdir(parents=True)
        (folder / "ctest.xml").write_text("<testsuite>" + "".join(
            f'<testcase name="{test}" status="{status}"><system-out>{said}</system-out>'
            + ('<skipped message="SKIP_RETURN_CODE=77"/>' if status == "notrun" else "") + "</testcase>"
            for test, (status, said) in tests.items()) + "</testsuite>")
        return folder

    return write


def test_programs(stage):
    first = stage({"release/a": ("run", ""), "release/b": ("run", "[ OK ]\nskipped: one: ptrace: EPERM\n")})
    second = stage({"asan/c": ("run", "")}, "sanitizers")
    status, closing, said = count(first, second)
    assert (status, closing) == (0, "3 passed, 0 failed, 1 skipped")
    assert "release/b" in said and "ptrace: EPERM" in said


@pytest.mark.parametrize("status", ["fail", "disabled"])
def test_what_failed_is_named(stage, status):
    printed = "begin\n" + "x\n" * 99 + "the end"
    code, closing, said = count(stage({"release/a": ("run", ""), "release/b": (status, printed)}))
    assert (code, closing) == (1, "1 passed, 1 failed, 0 skipped") and "release/b" in said
    assert "the end" in said and "begin" not in said
    assert "./hakmem test --again" in said


def test_a_whole_program_that_cannot_run(stage):
    folder = stage({"release/a": ("run", ""), "release/b": ("notrun", "skipped: b: no memory\n")})
    assert count(folder)[:2] == (0, "1 passed, 0 failed, 1 skipped")


def test_each_case_of_a_python_test_counts(stage):
    folder = stage({"release/pytest.x": ("fail", ""), "release/pytest.y": ("fail", "")})
    (folder / "cases/release.pytest.x.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.x" name="one"/>'
        '<testcase classname="tests.x" name="two"><failure message="assert 1 == 2"/></testcase>'
        '<testcase classname="tests.x" name="three"><skipped message="no unshare"/></testcase></testsuite></testsuites>')
    # Its process crashed after the last case.
    (folder / "cases/release.pytest.y.xml").write_text('<testsuite><testcase classname="tests.y" name="one"/></testsuite>')
    status, closing, said = count(folder)
    assert (status, closing) == (1, "2 passed, 2 failed, 1 skipped")
    assert "tests/x::two" in said and "assert 1 == 2" in said and "no unshare" in said and "release/pytest.y" in said


def test_a_stage_that_could_not_run_is_a_failure(stage, tmp_path):
    passed = stage({"release/a": ("run", "")})
    lost = tmp_path / "tools"
    lost.mkdir()
    (lost / "lost").write_text("no browser\n")
    status, closing, said = count(passed, lost)
    assert (status, closing) == (1, "1 passed, 1 failed, 0 skipped") and "tools" in said and "no browser" in said


def test_no_test_is_a_failure(stage):
    assert count(stage({}))[:2] == (1, "0 passed, 0 failed, 0 skipped")
