"""Protects tools/mutate: the mutants of a source, the same ones for a seed, and that its lists and page agree."""

import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

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
        assert [number for number, pair in enumerate(zip(SOURCE.split(b"\n"), changed, strict=True), 1)
                if pair[0] != pair[1]] == [one.line]


def test_a_mutant_gets_the_tests_that_run_its_line():
    tests = [builds.Test(name, [], []) for name in ("one", "two")]
    seen = reach.Reach.__new__(reach.Reach)
    seen.code = {"src/base/a.c": [3, 4, 5]}
    seen.rows = {"one": {"src/base/a.c": [3, 4]}, "two": {"src/base/a.c": [4]}}
    assert [[test.name for test in seen.of("src/base/a.c", line, tests)] for line in (3, 4, 5)] == [
        ["one"], ["one", "two"], []
    ]
    assert seen.of("src/base/a.c", 6, tests) == tests  # a line without code, such as a table's


def test_a_test_may_run_no_line(tmp_path):
    """As one that is skipped here."""
    seen = reach.Reach.__new__(reach.Reach)
    seen.build = SimpleNamespace(must=lambda command: None, jobs=1, out=tmp_path, tree=tmp_path, root=tmp_path)
    seen.out = tmp_path
    assert seen.lines_of(builds.Test("one", ["true"], [])) == {}


def test_known_mutants_apply_and_name_their_tests():
    """The source still has the text that a mutant replaces, and its test is there."""
    for row in KNOWN:
        source = blackbox.REPOSITORY / row["file"]
        assert source.is_file() and row["was"] != row["to"] and ("test" in row) != ("why" in row), row["name"]
        if "test" in row:
            assert source.read_text().count(row["was"]) == 1, row["name"]
            name, _, function = row["test"].partition("::")
            path = blackbox.REPOSITORY / (name if name.startswith("tests/") else reach.unit_source(name))
            assert re.search(rf"\b{function or 'test'}", path.read_text()), row["name"]


def test_the_page_has_the_table():
    table = subprocess.run([sys.executable, FOLDER, "--table"], capture_output=True, text=True, check=True).stdout
    assert table in (blackbox.REPOSITORY / "docs/dev/mutation.md").read_text()
