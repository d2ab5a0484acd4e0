"""The Markdown documents as tests see them: their blocks of code, and how a block's fence marks it.

    ```sh run            the commands run, and each ends with status 0
    ```sh run=process    the same, beside the process of that name (set_ups.sh), whose PID replaces the word PID
    ```text output       what the last block that ran prints, as far as `fields` tells
    ```c file=leak.c     the text of a file that the commands find

A block without such an attribute is only shown.
"""

import re
from dataclasses import dataclass

import blackbox

FENCE = re.compile(r"^ *```(\w*)(?: (.*))?$")


@dataclass
class Block:
    """A fenced block. marks: the fence's attributes, {name: value or ""}. line: the line of the opening fence."""

    language: str
    marks: dict[str, str]
    text: str
    line: int


@dataclass
class Document:
    name: str  # relative to the repository
    text: str

    @property
    def blocks(self) -> list[Block]:
        found, inside, rows = [], None, []
        for number, line in enumerate(self.text.splitlines(), 1):
            fence = FENCE.match(line)
            if inside is None and fence:
                marks = dict(word.partition("=")[::2] for word in (fence[2] or "").split())
                inside, rows = Block(fence[1], marks, "", number), []
                known = {"sh": {"run"}, "text": {"output", "file"}}.get(inside.language, {"file"})
                assert set(marks) <= known, f"{self.name}:{number}: {line} has a mark that its language does not know"
            elif inside is not None and line.strip() == "```":
                inside.text = "\n".join(rows)
                found.append(inside)
                inside = None
            elif inside is not None:
                rows.append(line)
        assert inside is None, f"{self.name}:{inside.line}: the block has no end"
        return found

    @property
    def prose(self) -> list[tuple[int, str]]:
        """(number, line) of all lines outside fenced blocks."""
        lines, fenced = [], False
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                lines.append((number, line))
        return lines


def read(name: str) -> Document:
    return Document(name, (blackbox.REPOSITORY / name).read_text(encoding="utf-8"))


def all_names() -> list[str]:
    """README.md and all documents below docs/."""
    paths = [blackbox.REPOSITORY / "README.md", *sorted((blackbox.REPOSITORY / "docs").rglob("*.md"))]
    return [str(path.relative_to(blackbox.REPOSITORY)) for path in paths]


def options() -> set[str]:
    """The names of the library's options."""
    table = (blackbox.REPOSITORY / "src/options/table.h").read_text()
    return set(re.findall(r'OPTION\(\w+, "(HAKMEM_\w+)"', table))


# ---- The output that a document shows ----

FIELD = re.compile(r"""
    ^hakmem:                        # a message
  | \bHAKMEM_[A-Z_]*[A-Z]\b         # an option
  | \blib[\w-]+\.so\b               # a library
  | \w+(?=[ ]{2,}\S*/[\w.]+:\d+$)   # a function, and the file and line beside it
  | [\w.]+\.\w+:\d+$
""", re.VERBOSE)


def fields(line: str) -> list[str]:
    """What a line of output names. Its words and figures may be others."""
    return FIELD.findall(line)


def unseen(wanted: str, output: str) -> str | None:
    """The first line of the text whose fields no line of the output has, behind those of the lines before it."""
    rows = iter(output.splitlines())
    for line in wanted.splitlines():
        if fields(line) and not any(set(fields(line)) <= set(fields(row)) for row in rows):
            return line
    return None
