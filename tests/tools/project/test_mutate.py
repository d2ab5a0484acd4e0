"""Protects tools/mutate: the mutants of a source, the same ones for a seed, and that its lists and page agree."""

import re
import runpy
import subprocess
import sys
import tomllib

import pytest

import blackbox

FOLDER = blackbox.REPOSITORY / "tools/mutate"
sys.path.insert(0, str(FOLDER))

import builds  # noqa: E402
import candidates  # noqa: E402
import reach  # noqa: E402

SOURCE = b"""
enum { SIZE = 7 };
_Static_assert(SIZE < 8, "a constant of no code");
static int step(int n)
{
    if (HAK_DEBUG)
        check(n < 3);
    debug_count(n + 1);
    if (n > 2)
        shared = n;
    atomic_store_explicit(&word, 0, memory_order_release);
    wake(n);
    return n && shared;
}
"""
KNOWN = tomllib.loads((FOLDER / "known.toml").read_text())["mutant"]


def made():
    return candidates.find_candidates("step.c", SOURCE)


def test_kinds():
    assert [(one.line, one.kind, one.was, one.to) for one in made()] == [
        (9, "condition", "(n > 2)", "(!(n > 2))"),
        (9, "comparison", ">", ">="),
        (9, "constant", "2", "3"),
        (10, "store", "shared = n;", ";"),
        (11, "store", "atomic_store_explicit(&word, 0, memory_order_release);", ";"),
        (11, "constant", "0", "1"),
        (11, "order", "memory_order_release", "memory_order_relaxed"),
        (12, "call", "wake(n);", ";"),
        (13, "operator", "&&", "||"),
    ]


def test_a_mutant_changes_its_place_alone():
    for one in made():
        changed = one.apply(SOURCE).split(b"\n")
        assert [
            number for number, pair in enumerate(zip(SOURCE.split(b"\n"), changed, strict=True), 1)
            if pair[0] != pair[1]
        ] == [one.line]
        assert one.function == "step" and one.told().startswith(f"step.c:{one.line} step: {one.kind}")


def listed(*options):
    return subprocess.run([sys.executable, FOLDER, "--list", *options], capture_output=True, text=True,
                          check=True).stdout.splitlines()


def test_a_seed_is_a_list():
    first = listed("--number", "20", "--seed", "3", "src/base")
    assert len(first) == 21 and first[0].startswith("20 of ")
    assert first == listed("--number", "20", "--seed", "3", "src/base") != listed("--number", "20", "--seed",
                                                                                  "4", "src/base")


def test_a_mutant_gets_the_tests_that_run_its_line():
    tests = [builds.Test(name, [], []) for name in ("one", "two")]
    seen = reach.Reach.__new__(reach.Reach)
    seen.code = {"src/base/a.c": [3, 4, 5]}
    seen.rows = {"one": {"src/base/a.c": [3, 4]}, "two": {"src/base/a.c": [4]}}
    assert [[test.name for test in seen.of("src/base/a.c", line, tests)] for line in (3, 4, 5)] == [
        ["one"], ["one", "two"], []
    ]
    assert seen.of("src/base/a.c", 6, tests) == tests  # a line without code, such as a table's


def test_a_mutant_of_a_header_gets_the_tests_that_include_it(tmp_path):
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_one.c").write_text('#include "core.h"\n#include "base/a.h"\n')
    (tmp_path / "tests/unit/test_two.c").write_text('#include "base/ab.h"\n')
    tests = [builds.Test(name, [], []) for name in ("test_one", "test_two", "mf2_drain")]
    seen = reach.Reach.__new__(reach.Reach)
    seen.build = builds.Build(tmp_path, tmp_path, "release", 1)
    seen.build.tree = tmp_path
    seen.code, seen.rows = {"src/base/a.h": [3]}, {"test_one": {}, "test_two": {}, "mf2_drain": {"src/base/a.h": [3]}}
    assert [test.name for test in seen.of("src/base/a.h", 3, tests)] == ["test_one", "mf2_drain"]


def test_sources_of_unit_tests():
    names = ("test_lock", "test_lock_one_cpu", "test_python_frames_11")
    assert [reach.unit_source(name) for name in names] == [
        "tests/unit/test_lock.c", "tests/unit/test_lock.c", "tests/unit/test_python_frames.c"
    ]


def test_the_last_run_is_known_after_lines_have_moved():
    main = runpy.run_path(str(FOLDER / "__main__.py"))
    before, after = made(), candidates.find_candidates("step.c", b"\n\n" + SOURCE)
    known = [[main["identity"](one.told(), one.text, one.which) for one in mutants] for mutants in (before, after)]
    assert [one.told() for one in before] != [one.told() for one in after]
    assert known[0] == known[1] and len(set(known[0])) == len(before)


def test_mutants_that_are_told_alike_are_told_apart():
    source = b"int twice(int n)\n{\n    return n / 2 + n * 2;\n}\n"
    alike = [one for one in candidates.find_candidates("twice.c", source) if one.kind == "constant"]
    assert alike[0].told() == alike[1].told() and [one.which for one in alike] == [0, 1]


@pytest.mark.parametrize("row", [row for row in KNOWN if "why" not in row], ids=lambda row: row["name"])
def test_a_known_mutant_applies(row):
    """The source still has the text that the mutant replaces."""
    assert (blackbox.REPOSITORY / row["file"]).read_text().count(row["was"]) == 1


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["name"])
def test_a_known_mutant_names_a_test(row):
    assert (blackbox.REPOSITORY / row["file"]).is_file() and row["was"] != row["to"] and ("test" in row) != ("why"
                                                                                                             in row)
    if "test" not in row:
        return
    name, _, function = row["test"].partition("::")
    text = (blackbox.REPOSITORY / (name if name.startswith("tests/") else reach.unit_source(name))).read_text()
    assert re.search(rf"\b{function or 'test'}", text)


def test_the_page_has_the_table():
    table = subprocess.run([sys.executable, FOLDER, "--table"], capture_output=True, text=True, check=True).stdout
    assert table in (blackbox.REPOSITORY / "docs/mutation.md").read_text()
