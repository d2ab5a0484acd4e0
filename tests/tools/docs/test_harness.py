"""Protects the tests of documents: they fail where a document is wrong."""

import pytest

import documents
import sessions
from documents import Document

PAGE = """\
# A page

`folder/one.txt`:

```text
a line
```

```sh
cat folder/one.txt   # what the file says
kept=here
```

```text
a line
```

```sh
echo "$kept: 12 of 30 MiB in /tmp"
false_here
```
"""


def run(text, folder, left_out=frozenset({"false_here"})):
    return sessions.run(Document("page.md", text), folder, set(left_out), {}, "")


def test_one_shell_runs_all_blocks_and_files_are_written(tmp_path):
    page = Document("page.md", PAGE)
    printed = run(PAGE, tmp_path)
    assert [printed[block.line].strip() for block in page.blocks if block.language == "sh"] == [
        "a line", "here: 12 of 30 MiB in /tmp"]
    ((block, wanted),) = sessions.expectations(page, set())
    assert (block.line, wanted) == (9, "a line")


def test_a_command_that_fails_is_told_with_its_block(tmp_path):
    with pytest.raises(AssertionError, match="the block at line 18 or before"):
        run(PAGE, tmp_path, frozenset())


def test_what_is_not_run_is_expected_of_nothing():
    page = Document("page.md", "# A\n\n```sh\none  # comment\n```\n\n```text\nseen\n```\n")
    assert len(sessions.expectations(page, set())) == 1
    assert sessions.expectations(page, {"one"}) == []


@pytest.mark.parametrize("wanted, output",
                         [("live 19,759,104  18.8 MiB   80.2 %  blocks",
                           "live     1,019,104   995 KiB    8.0 %  blocks that the program holds"),
                          ("mean < 1 ms  render /tmp/leak.c:14", "mean     1.09 s   render  /home/user/leak.c:14"),
                          ("first\n...\nlast", "first\nbetween\nlast"), ("in ... bytes", "in all 12 of 34 bytes"),
                          ("change +34.6 MiB", "change -2 KiB"),])
def test_numbers_units_and_paths_may_be_others(wanted, output):
    assert documents.unseen(wanted, output) is None


@pytest.mark.parametrize("wanted, output, missing", [
    ("live 12 MiB", "dead 12 MiB", "live 12 MiB"),
    ("live 12 MiB", "live MiB", "live 12 MiB"),
    ("first\nlast", "last\nfirst", "last"),
    ("twice\ntwice", "twice", "twice"),
    ("12 %", "12 bytes", "12 %"),
    ("at /tmp/leak.c:14", "at /tmp/leak.c:15", "at /tmp/leak.c:14"),
])
def test_words_and_order_may_not(wanted, output, missing):
    assert documents.unseen(wanted, output) == missing


def test_a_block_without_an_end_is_told():
    with pytest.raises(AssertionError, match="page.md:3: the block has no end"):
        assert Document("page.md", "# A\n\n```sh\ntrue\n").blocks
