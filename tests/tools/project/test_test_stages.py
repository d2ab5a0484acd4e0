"""Protects tools/test_stages.py: it runs each test of each flavor once, in order, and goes on from what failed."""

import json
import os
import subprocess
import sys

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "tools/test_stages.py"
sys.path.insert(0, str(SCRIPT.parent))

import count_tests
import test_stages

FLAVORS = ("release", "debug", "cycles", "clang", "asan", "ubsan", "tsan", "aarch64", "riscv64")


def stages(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture
def builds(tmp_path):
    """builds(flavor, {test: (label, command)}) makes a build with these tests, and returns the folder of all builds."""

    def make(flavor, tests):
        folder = tmp_path / flavor
        folder.mkdir(exist_ok=True)
        (folder / "CTestTestfile.cmake").write_text("".join(
            f'add_test({name} sh -c "{command}")\n'
            f'set_tests_properties({name} PROPERTIES LABELS "{label}" ENVIRONMENT "SAYS=a b;PATH=/usr/bin:/bin")\n'
            for name, (label, command) in tests.items()))
        return tmp_path

    return make


def names_in(folder, stage):
    cases = count_tests.ElementTree.parse(folder / "tests" / stage / "ctest.xml").getroot().iter("testcase")
    return sorted(case.get("name") for case in cases)


def test_flavors_are_built_before_the_stage_that_needs_them():
    listed = [line.split() for line in stages("--list", "--all", *FLAVORS).stdout.splitlines()]
    built = [flavor for _, _, *flavors in listed for flavor in flavors]
    assert sorted(built) == sorted(FLAVORS)
    for name, lists, *_ in listed:
        for each in lists.split(","):
            assert each == "-" or (blackbox.REPOSITORY / f"tools/packages/{each}.txt").exists(), name


def test_without_all_no_stage_needs_more_than_a_build():
    listed = [line.split() for line in stages("--list", "release", "asan", "tsan").stdout.splitlines()]
    assert len(listed) > 2 and all(lists == "-" for _, lists, *_ in listed)
    packages = [line for each in ("build", "test")
                for line in (blackbox.REPOSITORY / f"tools/packages/{each}.txt").read_text().splitlines()
                if line and not line.startswith("#")]
    assert len(packages) <= 12


def test_each_test_of_this_build_is_in_one_stage():
    """A test that is left over would be an error."""
    found = {stage.name: 0 for stage in test_stages.STAGES}
    for test in test_stages.tests_of(os.environ["HAKMEM_BUILD_DIR"]):
        found[test_stages.stage_of("release", test_stages.properties_of(test).get("LABELS", ())).name] += 1
    assert all(found[stage.name] for stage in test_stages.STAGES if stage.flavors == ("release",)), found


def test_a_stage_runs_its_tests_of_all_flavors(builds):
    folder = builds("debug", {"one": ("stress", 'test \\"$SAYS\\" = \\"a b\\"'), "other": ("unit", "true")})
    builds("release", {"one": ("stress", "true"), "tool": ("tools", "false"), "module": ("unit", "false"),
                       "lengthy": ("stress;long", "false")})
    done = stages("--run", "behaviour", "--builds", folder, "release", "debug")
    assert done.returncode == 0, done.stdout + done.stderr
    assert names_in(folder, "behaviour") == ["debug/one", "debug/other", "release/one"]
    assert list(json.loads((folder / "tests/times.json").read_text())) == ["behaviour"]
    assert stages("--run", "behaviour", "--all", "--builds", folder, "release", "debug").returncode == 1
    assert "release/lengthy" in names_in(folder, "behaviour")


def test_what_failed_runs_again(builds):
    """Only that, and with a stage that was lost the whole of it."""
    folder = builds("release", {"good": ("unit", "true"), "bad": ("unit", "test -e $0.mended"),
                                "browser": ("tools", "true")})
    run = ("--builds", folder, "release")
    assert stages("--run", "unit", *run).returncode == 1
    assert stages("--lost", "tools", "--reason", "no packages", *run).returncode == 0
    listed = [line.split() for line in stages("--list", "--again", *run).stdout.splitlines()]
    assert [(name, flavors) for name, _, *flavors in listed] == [("unit", ["release"]), ("tools", ["release"])]
    builds("release", {"good": ("unit", "false"), "bad": ("unit", "true"), "browser": ("tools", "true")})
    assert stages("--run", "unit", "--again", *run).returncode == 0
    assert names_in(folder, "unit") == ["release/bad"]
    assert stages("--run", "tools", "--again", *run).returncode == 0
    assert names_in(folder, "tools") == ["release/browser"]
    assert stages("--list", "--again", *run).stdout == ""


def test_a_failure_and_nothing_at_all_fail(builds):
    folder = builds("release", {"module": ("unit", "false")})
    assert stages("--run", "unit", "--builds", folder, "release").returncode == 1
    assert stages("--run", "tools", "--all", "--builds", folder, "release").returncode == 1
    assert not (folder / "tests/times.json").exists()


def test_continuous_integration_runs_a_command_that_the_readme_gives():
    ran = [line for line in (blackbox.REPOSITORY / ".ci/run").read_text().splitlines() if "hakmem test" in line]
    assert len(ran) == 1 and ran[0].removeprefix("exec ") in (blackbox.REPOSITORY / "README.md").read_text()
