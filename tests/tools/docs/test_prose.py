"""Protects all documents: links lead somewhere, names are the code's, lines and words follow the rules."""

import re
import subprocess
import sys

import pytest

import blackbox
import documents

sys.path.insert(0, str(blackbox.REPOSITORY / "tools"))

import check_architecture  # noqa: E402

# For a line of prose in pages for newcomers. Rows of tables, link targets and lines with a long word may be longer.
COLUMNS = 128
ARRIVING = ("README.md", "docs/README.md", "docs/faq.md", "docs/features.md", "docs/migrate.md", "docs/tune.md",
            "docs/start/")


def test_relative_links_lead_somewhere():
    assert [str(one) for one in check_architecture.check_links(blackbox.REPOSITORY)] == []


@pytest.mark.parametrize("name", documents.all_names())
def test_reference_links_have_their_targets(name):
    text = "\n".join(line for _, line in documents.read(name).prose)
    text = re.sub(r"`[^`]*`", "", text)
    used = set(re.findall(r"\]\[([\w-]+)\]", text))
    known = re.findall(r"^\[([\w-]+)\]: https://\S+$", text, re.M)
    assert used == set(known) and len(known) == len(set(known))


VARIABLE = re.compile(r"\bHAKMEM_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*)")


@pytest.fixture(scope="module")
def other_names():
    """Names in the code that begin with HAKMEM_: variables of tools and tests, macros, build settings."""
    files = [path for folder in ("bench", "cmake", "include", "python", "rust", "src", "tests", "tools")
             for path in (blackbox.REPOSITORY / folder).rglob("*")
             if path.suffix in (".c", ".h", ".hpp", ".cmake", ".py", ".rs", ".sh", ".toml", ".txt")]
    files += [blackbox.REPOSITORY / "hakmem", blackbox.REPOSITORY / "CMakeLists.txt"]
    return {name for path in files for name in VARIABLE.findall(path.read_text(errors="replace"))}


@pytest.mark.parametrize("name", documents.all_names())
def test_variables_are_those_of_the_code(name, other_names):
    assert set(VARIABLE.findall(documents.read(name).text)) - documents.options() - other_names == set()


def commands() -> set[str]:
    """The commands in `./hakmem help`."""
    said = subprocess.run([blackbox.REPOSITORY / "hakmem", "help"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^  (\S.*?)(?:  |$)", said, re.M)
    return {word for row in rows for word in re.findall(r"(?<!\S)[a-z]+(?=[\s,]|$)", row)}


def test_commands_are_those_of_the_help():
    known = commands()
    assert {"run", "heap", "explain", "compare", "trace"} <= known
    wrong = []
    for name in documents.all_names():
        text = documents.read(name).text
        told = re.findall(r"`(?:\./)?hakmem ([a-z]+)\b", text)
        typed = [word for block in documents.read(name).blocks if block.language == "sh"
                 for word in re.findall(r"^(?:\./)?hakmem ([a-z]+)\b", block.text, re.M)]
        # In gdb `hakmem` is a command with its own subcommands.
        wrong += [f"{name}: hakmem {word}" for word in told + typed if word not in known and name != "docs/gdb.md"]
    assert [line for line in wrong if line != "docs/observability.md: hakmem block"] == []


def short_names(name: str) -> set[str]:
    """The options in the tables of a document that omits HAKMEM_."""
    words = re.findall(r"`([A-Z][A-Z0-9_]+)(?:=[^`]*)?`", documents.read(name).text)
    return {word for word in words if f"HAKMEM_{word}" in documents.options()}


def test_migration_names_most_options_that_users_set():
    """The short names exist: a page without any would pass the test above."""
    wanted = {"PURGE_DELAY", "PURGE_THREAD", "THP", "MEMORY_LIMIT", "CACHE_BYTES", "HEAP_PROFILE"}
    assert wanted <= short_names("docs/migrate.md")


@pytest.mark.parametrize("name", ["docs/migrate.md", "docs/tune.md"])
def test_short_names_are_options(name):
    """The last column of a table names HAKMEM's options. A word in it that looks like an option must be one."""
    column = 2 if name == "docs/migrate.md" else 1
    allowed = {"ENOMEM", "MADV_DONTNEED", "MADV_FREE", "NULL", "PYTHONMALLOC"}
    wrong = []
    for number, line in documents.read(name).prose:
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) > column + 1 and not set(line) <= set("|-"):
            words = re.findall(r"`([A-Z][A-Z0-9_]{2,})(?:=[^`]*)?`", cells[column])
            wrong += [f"{number}: {word}" for word in words
                      if word not in allowed and f"HAKMEM_{word.removeprefix('HAKMEM_')}" not in documents.options()]
    assert wrong == []


@pytest.mark.parametrize("name", documents.all_names())
def test_lines_and_words(name):
    wrong = []
    for number, line in documents.read(name).prose:
        text = re.sub(r"`[^`]*`", "", line)
        if re.search(r"\b[Ww]e\b", text):
            wrong.append(f"{number}: says 'we'")
        may_be_long = line.startswith(("|", "[")) or max(map(len, line.split()), default=0) >= 60
        if name.startswith(ARRIVING) and len(line) > COLUMNS and not may_be_long:
            wrong.append(f"{number}: {len(line)} columns")
        if line != line.rstrip():
            wrong.append(f"{number}: blanks at its end")
    assert wrong == []


@pytest.mark.parametrize("name", documents.all_names())
def test_one_title_and_headings_in_order(name):
    levels = [len(match[1]) for _, line in documents.read(name).prose if (match := re.match(r"(#+) ", line))]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in zip(levels, levels[1:]))


def test_every_document_is_in_the_index():
    listed = set()
    for folder, index in ("docs", "docs/README.md"), ("docs/start", "docs/start/README.md"):
        text = documents.read(index).text
        names = re.findall(r"\]\(([\w./-]+\.md)", text) + re.findall(r"`([\w-]+\.md)`", text)
        listed |= {(blackbox.REPOSITORY / folder / name).resolve() for name in names}
    pages = {page.resolve() for page in (blackbox.REPOSITORY / "docs").rglob("*.md") if page.name != "README.md"}
    assert {str(page) for page in pages - listed} == set()
