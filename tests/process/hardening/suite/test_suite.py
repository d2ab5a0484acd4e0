"""Protects the outcome of each misuse case: expected.txt has it for each build, and docs/dev/misuse-table.md repeats it."""

import signal
import sys

import pytest

import blackbox

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.bench import misuse  # noqa: E402

UPDATE = "if the change is meant: build/venv/bin/python tests/process/hardening/suite/expect.py --update, and commit what it writes"
SIZES = {16, 100, 1000, 5000, 60 << 10, 64 << 10, 300 << 10, 2 << 20, 40 << 20}
BUILDS = misuse.own_builds(blackbox.LIBRARY)
# How often an unexpected outcome is settled anew. Where blocks lie at random, an outcome that expected.txt does not
# have came in none of the 40 runs behind it. If its chance is 1 %, then all of these and the first run agree on it
# with a chance below 1e-21: each of them takes four of seven runs.
SETTLINGS = 3


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return misuse.compile_suite(tmp_path_factory.mktemp("suite"))


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_each_case(programs, build):
    expected = misuse.read_table(misuse.EXPECTED)
    assert build.name in expected, f"expected.txt has no column for {build.name}; {UPDATE}"
    found = misuse.run_suite(programs, build)
    for _ in range(SETTLINGS):
        found = misuse.settle_suite(programs, build, expected[build.name], found)
    told = misuse.differences(expected[build.name], found)
    assert not told, "\n".join([f"{build.name}: {len(told)} cases; {UPDATE}", *told])


def test_the_cases_cover_the_product():
    cases = misuse.load_cases()
    assert len(cases) == len(set(cases)) >= 150
    assert {case.size for case in cases} == SIZES
    assert {case.thread for case in cases} == {"same", "other"} and {case.language for case in cases} == {"C", "C++"}
    assert {case.kind for case in cases} == set(misuse.load_kinds())


def test_the_page_is_made_of_the_tables():
    assert misuse.TABLE.read_text() == misuse.page(), f"docs/dev/misuse-table.md is not current; {UPDATE}"


# ---- The tool itself ----


@pytest.mark.parametrize("status,said,outcome", [
    (-signal.SIGABRT, "before", "call"),
    (-signal.SIGILL, "before", "call"),
    (-signal.SIGSEGV, "before", "fault"),
    (-signal.SIGABRT, "before after", "later"),
    (-signal.SIGSEGV, "before after", "later"),
    (-signal.SIGABRT, "before after harm", "late"),
    (0, "before after end", "harmless"),
    (0, "before after harm end", "on"),
    (-signal.SIGALRM, "before after", "hangs"),
    (77, "", "n/a"),
])
def test_an_outcome(status, said, outcome):
    assert misuse.outcome_of(status, said) == outcome


@pytest.mark.parametrize("status,said", [(-signal.SIGSEGV, ""), (2, ""), (0, "before after"), (3, "before after"),
                                         (-signal.SIGTERM, "before")])
def test_an_end_that_tells_nothing(status, said):
    with pytest.raises(misuse.SuiteError):
        misuse.outcome_of(status, said)


def test_differences():
    expected = {"a": "call", "b": "call/later", "c": "on"}
    assert misuse.differences(expected, {"a": "call", "b": "later", "c": "on"}) == []
    told = misuse.differences(expected, {"a": "later", "b": "call", "d": "on"})
    assert [line.partition(":")[0] for line in told] == ["a", "c", "d"]
    assert "'call'" in told[0] and "'later'" in told[0] and "'on'" in told[1] and "'on'" in told[2]


@pytest.mark.parametrize("chance,again,settled", [
    (True, ["call"] * 4 + ["on"] * 3, "call"),
    (True, ["call"] * 3 + ["on"] * 4, "on"),
    (False, [], "on"),
])
def test_chance_is_given_more_chances(chance, again, settled):
    build = misuse.Build("some", None, by_chance=chance)
    assert misuse.settle(build, {"a": "call"}, {"a": "on"}, lambda name: again.pop(0)) == {"a": settled}
    assert not again


def test_totals():
    outcomes = {"a": "call", "b": "call/later", "c": "on", "d": "harmless", "e": "late", "f": "n/a", "g": "call/on"}
    assert misuse.totals(outcomes) == (3, 3, 6)


def test_a_table_survives_its_file(tmp_path):
    names = [case.name for case in misuse.load_cases()]
    columns = {"one": dict.fromkeys(names, "call"), "two": dict.fromkeys(names[:5], "call/later")}
    misuse.write_table(tmp_path / "table.txt", columns, ("a comment",))
    read = misuse.read_table(tmp_path / "table.txt")
    assert read["one"] == columns["one"]
    assert read["two"] == {**dict.fromkeys(names, "-"), **columns["two"]}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_no_misuse_no_alarm(programs, build):
    """Without the misuse no build stops the programs, and they find no harm."""
    for size in sorted(SIZES):
        for thread in ("same", "other"):
            for language in ("C", "C++"):
                case = misuse.Case("none", size, thread, language)
                assert misuse.run_case(programs, case, build) == "harmless", case.name
