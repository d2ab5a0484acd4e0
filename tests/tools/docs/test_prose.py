"""Protects all documents: links lead somewhere, and the options and commands that they name exist."""

import re
import sys

import click

import blackbox
import documents

sys.path.insert(0, str(blackbox.REPOSITORY / "tools"))

import check_architecture  # noqa: E402

from hakmem import completion  # noqa: E402
from hakmem.cli import VIEWS, main  # noqa: E402
from hakmem.look.command import named_view  # noqa: E402


def test_relative_links_lead_somewhere():
    assert [str(one) for one in check_architecture.check_links(blackbox.REPOSITORY)] == []


def test_reference_links_have_their_targets():
    for name in documents.all_names():
        text = "\n".join(line for _, line in documents.read(name).prose)
        text = re.sub(r"`[^`]*`", "", text)
        used = set(re.findall(r"\]\[([\w-]+)\]", text))
        known = re.findall(r"^\[([\w-]+)\]: https://\S+$", text, re.M)
        assert used == set(known) and len(known) == len(set(known)), name


def test_every_document_is_in_the_index():
    listed = set()
    text = documents.read("docs/README.md").text
    for name in re.findall(r"\]\(([\w./-]+\.md)", text) + re.findall(r"`([\w-]+\.md)`", text):
        listed.add((blackbox.REPOSITORY / "docs" / name).resolve())
    pages = {page.resolve() for page in (blackbox.REPOSITORY / "docs").rglob("*.md") if page.name != "README.md"}
    assert {str(page) for page in pages - listed} == set()


def test_pages_for_users_stay_few():
    """Generated pages do not count, nor does docs/dev/, nor a picture's or a table's marks."""
    made = {"docs/classes.md", "docs/options.md", "docs/why.md"}
    pages = [name for name in documents.all_names() if not name.startswith("docs/dev/") and name not in made]
    words = sum(bool(re.search(r"\w", word)) for name in pages for word in documents.read(name).text.split())
    assert len(pages) <= 25 and words <= 35_000


# ---- The library's options ----

VARIABLE = re.compile(r"\bHAKMEM_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*)")


def other_names():
    """Names in the code that begin with HAKMEM_: variables of tools and tests, macros, build settings."""
    files = [path for folder in ("bench", "cmake", "include", "python", "rust", "src", "tests", "tools")
             for path in (blackbox.REPOSITORY / folder).rglob("*")
             if path.suffix in (".c", ".h", ".hpp", ".cmake", ".py", ".rs", ".sh", ".toml", ".txt")]
    files += [blackbox.REPOSITORY / "hakmem", blackbox.REPOSITORY / "CMakeLists.txt"]
    return {name for path in files for name in VARIABLE.findall(path.read_text(errors="replace"))}


def test_variables_are_those_of_the_code():
    known = documents.options() | other_names()
    wrong = {(name, variable) for name in documents.all_names()
             for variable in VARIABLE.findall(documents.read(name).text) if variable not in known}
    assert wrong == set()


def test_short_names_are_options():
    """The last column of a table of tune.md names HAKMEM's options. A word in it that looks like an option must be
    one."""
    allowed = {"EINVAL", "ENOMEM", "MADV_DONTNEED", "MADV_FREE", "NULL", "PYTHONMALLOC"}
    wrong, seen = [], 0
    for number, line in documents.read("docs/tune.md").prose:
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 4 and not set(line) <= set("|-"):
            words = set(re.findall(r"`([A-Z][A-Z0-9_]{2,})(?:=[^`]*)?`", cells[2])) - allowed
            seen += len(words)
            wrong += [f"{number}: {word}" for word in words
                      if f"HAKMEM_{word.removeprefix('HAKMEM_')}" not in documents.options()]
    assert wrong == [] and seen > 50


# ---- The commands, and their options ----

# A command at the start of a line, behind variables, or in another command.
TYPED = re.compile(r"(?:^|\$\(|; )(?:[A-Z_]+=\S+ )*(?:\./)?hakmem +([a-z].*)")


def command_lines(document: documents.Document) -> list[str]:
    """What follows `hakmem` in the commands of a document, in blocks and in code spans: up to a comment, another
    command or a program's own words."""
    lines = [line for block in document.blocks if block.language == "sh" for line in block.text.splitlines()]
    lines += re.findall(r"`([^`]+)`", " ".join(line for _, line in document.prose))
    ends = re.compile(r"\s#\s|\s--(?:\s|$)|[|;&<>]|\$\(")
    return [ends.split(found[1])[0] for line in lines if (found := TYPED.search(line))]


def unknown_in(line: str) -> str | None:
    """The first word of a command line that is no command or option."""
    words = line.split()
    if words[0] in completion.CHECKOUT_COMMANDS:
        return None  # the script reads the rest
    if words[0] == "look":  # a view's options are its command's; without a name, some view has them
        view, words = named_view(words[1:])
        unknown = [unknown_in(" ".join([each, *words])) for each in ([view] if view else VIEWS)]
        return None if None in unknown else unknown[0]
    command, words = main.get_command(click.Context(main), words[0]), words[1:]
    if command is None:
        return line.split()[0]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            break
        command, words = inner, words[1:]
    known = {option for each in command.params for option in [*each.opts, *each.secondary_opts]} | {"--help", "-h"}
    named = (word for word in words if re.match(r"--?[a-zA-Z]", word))
    return next((word for word in named if word.partition("=")[0] not in known), None)


def test_commands_and_their_options_exist():
    commands = (blackbox.REPOSITORY / "python/hakmem/gdb/commands.py").read_text()
    in_gdb = {name.lower() for name in re.findall(r"^class (\w+)\(Command\)", commands, re.MULTILINE)}
    wrong, seen = [], 0
    for name in documents.all_names():
        for line in command_lines(documents.read(name)):
            seen += 1
            if (word := unknown_in(line)) and word not in in_gdb:
                wrong.append(f"{name}: hakmem {line}: {word}")
    assert wrong == [] and seen > 100


def test_what_does_not_exist_is_found():
    assert unknown_in("heap --start PID --rat 64K") == "--rat" and unknown_in("fly PID") == "fly"
    assert unknown_in("look PID --map --once") == "--once" and unknown_in("look PID --once") is None
    assert unknown_in("look PID --map -o FILE") is None
    assert unknown_in("trace replay --allocator glibc app.trace") is None
