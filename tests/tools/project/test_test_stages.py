"""Protects tools/test_stages.py: it runs each test of each flavor once, in order, and reports its progress."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "tools/test_stages.py"
sys.path.insert(0, str(SCRIPT.parent))

import test_stages 


def stages(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture
def builds(tmp_path):
    """builds(flavor, {test: (label, command)}) makes a build with these tests, and returns the folder of all builds."""

    def make(flavor, tests):
        folder = tmp_path / flavor
        folder.mkdir()
        (folder / "CTestTestfile.cmake").write_text("".join(
            f'add_test({name} sh -c "{command}")\n'
            f'set_tests_properties({name} PROPERTIES LABELS "{label}" ENVIRONMENT "SAYS=a b;PATH=/usr/bin:/bin")\n'
            for name, (label, command) in tests.items()))
        return tmp_path

    return make


def test_flavors_are_built_before_the_stage_that_needs_them():
    listed = stages("--list", "release", "debug", "asan").stdout.splitlines()
    assert [line.split() for line in listed] == [
        ["unit", "release"], ["behaviour", "debug"], ["sanitizers", "asan"], ["cost"], ["tools"]]


def test_all_tests_are_in_one_stage(builds):
    """Tests of every flavor, with all labels. A test that is left over would be an error."""
    for flavor in ("release", "debug", "cycles", "clang", "asan", "ubsan", "tsan", "aarch64"):
        for label in ("unit", "stress", "blackbox"):
            assert test_stages.stage_of(flavor, [label]).name
    assert test_stages.stage_of("release", ["bounds", "cost"]).name == "cost"
    with pytest.raises(StopIteration):
        test_stages.stage_of("debug", ["tools"])


def test_a_stage_runs_its_tests_of_all_flavors(builds):
    folder = builds("debug", {"one": ("stress", 'test \\"$SAYS\\" = \\"a b\\"'), "other": ("unit", "true")})
    builds("release", {"one": ("stress", "true"), "tool": ("tools", "false"), "module": ("unit", "false")})
    done = stages("--run", "behaviour", "--builds", folder, "release", "debug")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stage 2 of 4, behaviour: " in done.stdout
    assert "; 3 tests in release, debug; 0 min so far, about " in done.stdout
    cases = ElementTree.parse(folder / "tests/behaviour/ctest.xml").getroot().iter("testcase")
    assert sorted(case.get("name") for case in cases) == ["debug/one", "debug/other", "release/one"]
    assert list(json.loads((folder / "tests/times.json").read_text())) == ["behaviour"]


def test_long_tests_run_with_all(builds):
    folder = builds("release", {"brief": ("stress", "true"), "lengthy": ("stress;long", "false")})
    brief = stages("--run", "behaviour", "--builds", folder, "release")
    assert brief.returncode == 0 and "; 1 tests in release; " in brief.stdout, brief.stdout + brief.stderr
    everything = stages("--run", "behaviour", "--all", "--builds", folder, "release")
    assert everything.returncode == 1 and "; 2 tests in release; " in everything.stdout, everything.stdout
    assert list(json.loads((folder / "tests/times.json").read_text())) == ["behaviour"]


def test_each_kind_of_test_is_in_the_ten_minutes():
    """Every stage has tests without the label `long` in the flavors that ./hakmem test builds, and the stages say that
    they take about ten minutes, and half an hour with --all."""
    listed = {stage.name: [] for stage in test_stages.STAGES}
    for test in test_stages.tests_of(os.environ["HAKMEM_BUILD_DIR"]):
        labels = test_stages.properties_of(test).get("LABELS", ())
        listed[test_stages.stage_of("release", labels).name].append(test_stages.LONG not in labels)
    assert all(any(listed[name]) for name in ("unit", "behaviour", "cost", "tools")), listed
    assert not all(listed["behaviour"]) and not all(listed["tools"])
    assert sum(stage.seconds for stage in test_stages.STAGES) < 11 * 60


def test_continuous_integration_runs_the_command_that_the_readme_gives():
    """README.md's command for everything is the one in .ci/run. --keep-going changes only what follows a failure."""
    readme = (blackbox.REPOSITORY / "README.md").read_text()
    given = re.findall(r"^(\./hakmem test.*?) *(?:#.*)?$", readme, re.MULTILINE)
    assert given == ["./hakmem test", "./hakmem test --all"]
    ran = re.findall(r"^exec (.*)$", (blackbox.REPOSITORY / ".ci/run").read_text(), re.MULTILINE)
    assert ran == [f"{given[1]} --keep-going"]


def test_a_failure_and_nothing_at_all_fail(builds):
    folder = builds("release", {"module": ("unit", "false")})
    assert stages("--run", "unit", "--builds", folder, "release").returncode == 1
    assert stages("--run", "tools", "--builds", folder, "release").returncode == 1
    assert not (folder / "tests/times.json").exists()
