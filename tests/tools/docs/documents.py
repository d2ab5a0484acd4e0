"""The Markdown documents as tests see them: the commands and files that they give a reader, and their prose."""

import re
from dataclasses import dataclass

import blackbox

FENCE = re.compile(r"^```(\w*)$")
# The paragraph before a block of another language may name the block's file.
FILE_NAME = re.compile(r"^`([\w./-]+)`:$")


@dataclass
class Block:
    """A fenced block. file: its name in the paragraph before it, or None. line: the line of the opening fence."""

    language: str
    text: str
    line: int
    file: str | None


@dataclass
class Document:
    name: str  # relative to the repository
    text: str

    @property
    def blocks(self) -> list[Block]:
        found, inside, rows, before = [], None, [], ""
        for number, line in enumerate(self.text.splitlines(), 1):
            fence = FENCE.match(line)
            if inside is not None:
                if fence:
                    inside.text = "\n".join(rows)
                    found.append(inside)
                    inside, before = None, ""
                else:
                    rows.append(line)
            elif fence:
                name = FILE_NAME.match(before)
                inside, rows = Block(fence[1], "", number, name[1] if name else None), []
            elif line.strip():
                before = line.strip()
        assert inside is None, f"{self.name}:{inside.line}: the block has no end"
        return found

    @property
    def prose(self) -> list[tuple[int, str]]:
        """(number, line) of all lines outside fenced blocks."""
        lines, fenced = [], False
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.startswith("```"):
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

NUMBER = re.compile(r"[+-]?\d[\d.,]*")
UNITS = {"B", "KiB", "MiB", "GiB", "bytes"}
TIMES = {"us", "ms", "s", "min"}


def pattern_of(line: str) -> str:
    """A regular expression for a line of output. Its numbers, units and absolute paths may differ. Of a path that ends
    with a line number, the file and that number stay."""
    words = []
    for word in line.split():
        if word == "...":
            words.append(".*")
        elif word == "<":
            words.append("<?")
        elif word in UNITS:
            words.append("(?:" + "|".join(UNITS) + ")")
        elif word in TIMES:
            words.append("(?:" + "|".join(TIMES) + ")")
        elif word.startswith("/"):
            words.append(r"\S*" + re.escape(word[word.rindex("/"):]) if re.search(r":\d+$", word) else r"\S+")
        else:
            words.append(r"[+-]?\d[\d.,]*".join(re.escape(part) for part in NUMBER.split(word)))
    return r"\s*".join(words)


def unseen(wanted: str, output: str) -> str | None:
    """The first line of the text that is missing in the output after the previous line. A line `...` stands for any."""
    rows = iter(output.splitlines())
    for line in wanted.splitlines():
        if line.strip() in ("", "..."):
            continue
        pattern = re.compile(pattern_of(line))
        if not any(pattern.match(row.strip()) for row in rows):
            return line
    return None
