"""Protects the documents' commands: those that a fence marks end well, and name in their output what a page shows."""

import shutil
import tempfile
from pathlib import Path

import pytest

import documents
import sessions


@pytest.fixture
def folder():
    """A folder with a short name: hakmem heap breaks longer ones into two lines."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    yield made
    shutil.rmtree(made)


def with_commands() -> list[str]:
    return [name for name in documents.all_names()
            if any("run" in block.marks for block in documents.read(name).blocks)]


@pytest.mark.parametrize("name", with_commands())
def test_marked_commands_run(name, folder):
    document = documents.read(name)
    printed = sessions.run(document, folder)
    for block, wanted in sessions.expectations(document):
        missing = documents.unseen(wanted, printed[block.line])
        assert missing is None, f"{name}:{block.line}: {missing!r} is not in what was printed:\n{printed[block.line]}"


# ---- What the marks mean ----

PAGE = """\
# A page

```text file=folder/one.txt
hakmem: HAKMEM_THP
```

```sh run
cat folder/one.txt   # what the file says
kept=here
```

```text output
hakmem: other words, 12 of HAKMEM_THP
```

```sh
false # only shown
```

```sh run
echo "$kept"
false_here
```
"""


def test_one_shell_runs_the_marked_blocks_and_files_are_written(folder):
    page = documents.Document("page.md", PAGE.replace("false_here\n", ""))
    printed = sessions.run(page, folder)
    ran = [printed[block.line].strip() for block in page.blocks if "run" in block.marks]
    assert ran == ["hakmem: HAKMEM_THP", "here"]
    ((block, wanted),) = sessions.expectations(page)
    assert (block.line, documents.unseen(wanted, printed[block.line])) == (7, None)


def test_a_command_that_fails_is_told_with_its_block(folder):
    with pytest.raises(AssertionError, match="page.md, the block at line 20 "):
        sessions.run(documents.Document("page.md", PAGE), folder)


@pytest.mark.parametrize("wanted, output, missing", [
    ("47 MiB  render  /tmp/leak.c:14", "47 KiB   100 %  render     /src/leak.c:14", None),
    ("47 MiB  render  /tmp/leak.c:14", "47 MiB  render  /tmp/leak.c:15", "47 MiB  render  /tmp/leak.c:14"),
    ("47 MiB  render  /tmp/leak.c:14", "47 MiB  answer  /tmp/leak.c:14", "47 MiB  render  /tmp/leak.c:14"),
    ("hakmem: unknown HAKMEM_THQ", "hakmem: there is no HAKMEM_THQ", None),
    ("hakmem: unknown HAKMEM_THQ", "hakmem: there is no HAKMEM_THP", "hakmem: unknown HAKMEM_THQ"),
    ("by /usr/lib/hakmem/libhakmem.so.0\n...\na.c:1", "a.c:1\nby /b/libhakmem.so", "a.c:1"),
])
def test_what_output_names_is_compared(wanted, output, missing):
    assert documents.unseen(wanted, output) == missing


@pytest.mark.parametrize("fence", ["```sh ran", "```text run", "```sh run\ntrue\n"])
def test_a_wrong_mark_or_a_block_without_an_end_is_told(fence):
    with pytest.raises(AssertionError, match="page.md:3: "):
        assert documents.Document("page.md", f"# A\n\n{fence}\n").blocks
