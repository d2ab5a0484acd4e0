"""Protects tools/coverage: which lines and conditions count, and that its list and page agree with the sources."""

import subprocess
import sys

import pytest

import blackbox

FOLDER = blackbox.REPOSITORY / "tools/coverage"
sys.path.insert(0, str(FOLDER))

import figures  # noqa: E402
import known  # noqa: E402

CODE = """\
static int step(int n)
{
    if (HAK_DEBUG)
        check(n);
    if (HAK_DEBUG && n) {
        check(n);
        n++;
    }
    if (n > 2)
        return 1;
    if (n < 0)
        return -1;
    return 0;
}

static int other(void)
{
    return 2;
}
"""
ENTRIES = """
[[lines]]
file = "a/step.c"
function = "step"
after = "if (n < 0)"
first = "return -1;"
why = "nobody is below"
"""


def source(counts):
    """The code with the count of each line; lines that are not named ran once."""
    made = figures.Source("a/step.c", CODE.splitlines())
    absent = figures.structure(made, CODE.encode())
    made.lines = {line: counts.get(line, 1) for line in made.functions if line not in absent}
    return {"a/step.c": made}


def test_what_only_debug_builds_run_does_not_count():
    made = source({})["a/step.c"]
    assert [line for line in made.functions if line not in made.lines] == [4, 6, 7, 8]
    assert made.function(9) == "step" and made.function(18) == "other" and made.function(15) == ""


@pytest.mark.parametrize("condition", ["HAK_SECURE", "!HAK_DEBUG", "CFI_REGISTERS == 33", "1u"])
def test_a_condition_of_constants_is_none(condition):
    assert figures.is_constant(condition)


@pytest.mark.parametrize("condition", ["n > 2", "HAK_SECURE && n", "size == SIZE_MAX", "HAK_LIKELY(found)"])
def test_a_condition_of_a_variable_is_one(condition):
    assert not figures.is_constant(condition)


def test_the_list_knows_a_line():
    assert known.check(known.entries(ENTRIES), source({12: 0})) == ([], {})


def test_a_line_that_the_list_lacks_is_told():
    assert known.check(known.entries(ENTRIES), source({10: 0, 12: 0})) == ([], {"a/step.c": [10]})


def test_a_line_that_runs_must_leave_the_list():
    wrong, unknown = known.check(known.entries(ENTRIES), source({}))
    assert wrong == ["src/a/step.c: step: return -1;: line 12 runs now; take it off the list"] and not unknown


def test_a_line_that_runs_sometimes_may_stay():
    assert known.check(known.entries(ENTRIES + "sometimes = true\n"), source({})) == ([], {})


@pytest.mark.parametrize("was, to, words", [
    ('"if (n < 0)"', '"if (n < 1)"', "0 times below"), ('"return -1;"', '"return -2;"', "0 times below"),
    ('"step"', '"steps"', "no such function"), ('"a/step.c"', '"a/steps.c"', "no such file"),
])
def test_an_entry_without_its_line_is_told(was, to, words):
    wrong, _ = known.check(known.entries(ENTRIES.replace(was, to)), source({12: 0}))
    assert len(wrong) == 1 and words in wrong[0]


def test_a_whole_function():
    rows = '[[lines]]\nfile = "a/step.c"\nfunctions = ["other"]\nwhy = "nobody calls it"\n'
    assert known.check(known.entries(rows), source({16: 0, 17: 0, 18: 0, 19: 0})) == ([], {})
    assert "runs now" in known.check(known.entries(rows), source({16: 0, 17: 0, 19: 0}))[0][0]


def test_a_draft_is_a_list_that_knows_all():
    sources = source({10: 0, 12: 0, 16: 0, 17: 0, 18: 0, 19: 0})
    drafted = known.drafted(sources, known.check([], sources)[1])
    assert drafted.count("[[lines]]") == 3
    assert known.check(known.entries(drafted), sources) == ([], {})


def test_shares():
    sources = source({10: 0, 12: 0})
    sources["a/step.c"].branches = {(9, 9): [3, 1], (11, 9): [0, 4]}
    lines, branches = figures.by_folder(sources)["a"]
    assert (lines.run, lines.all, branches.run, branches.all) == (12, 14, 3, 4)
    assert branches.percent() == 75 and figures.Share().percent() == 100


def test_each_entry_has_a_reason_and_its_lines():
    for entry in known.entries(known.LIST.read_text()):
        path = blackbox.REPOSITORY / "src" / entry.file
        made = figures.Source(entry.file, path.read_text().splitlines())
        figures.structure(made, path.read_bytes())
        made.lines = dict.fromkeys(made.functions, 0)
        assert entry.why and known.place(entry, made) == "", entry.told()


def test_the_page_has_the_table():
    table = subprocess.run([sys.executable, FOLDER, "--table"], capture_output=True, text=True, check=True).stdout
    assert table in (blackbox.REPOSITORY / "docs/coverage.md").read_text()
