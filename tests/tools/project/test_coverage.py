"""Protects tools/coverage: which lines and conditions count, and that its list and page agree with the sources."""

import subprocess
import sys
from pathlib import Path

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
    assert figures.is_constant("HAK_SECURE") and not figures.is_constant("HAK_SECURE && n")


def test_the_list_is_compared_with_what_ran():
    """It knows a line, lacks one, has one that runs, has one that may run, and has one that is not there."""
    entries = known.entries(ENTRIES)
    assert known.check(entries, source({12: 0})) == ([], {})
    assert known.check(entries, source({10: 0, 12: 0})) == ([], {"a/step.c": [10]})
    wrong, unknown = known.check(entries, source({}))
    assert len(wrong) == 1 and "line 12" in wrong[0] and not unknown
    assert known.check(known.entries(ENTRIES + "sometimes = true\n"), source({})) == ([], {})
    for was, to in (('"if (n < 0)"', '"if (n < 1)"'), ('"step"', '"steps"'), ('"a/step.c"', '"a/steps.c"')):
        assert len(known.check(known.entries(ENTRIES.replace(was, to)), source({12: 0}))[0]) == 1


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
    assert table in (blackbox.REPOSITORY / "docs/dev/coverage.md").read_text()


def test_names_of_sources():
    """llvm tells full paths, and paths from the build where ccache made them relative."""
    root = Path("/home/me/hakmem")
    for path in ("/home/me/hakmem/src/os/file.c", "../../src/os/file.c",
                 "/home/me/hakmem/build/coverage/../../src/os/file.c"):
        assert figures.name_below(root, root / "build/coverage", path) == "os/file.c"
    for path in ("/usr/include/stdio.h", "../../tests/unit/test_os.c"):
        assert figures.name_below(root, root / "build/coverage", path) is None
