"""The lines that no test runs, and why: uncovered.toml, compared with the figures."""

import tomllib
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from figures import Source

LIST = Path(__file__).resolve().parent / "uncovered.toml"


@dataclass
class Entry:
    """Lines that do not run: a function's, or those from `first`, which stands below `after`, to `last`."""

    file: str
    function: str
    why: str
    after: str = ""
    first: str = ""
    last: str = ""
    sometimes: bool = False  # a race or a busy machine makes them run
    lines: list[int] = field(default_factory=list)

    def told(self) -> str:
        """Returns the entry's place."""
        return f"src/{self.file}: {self.function}" + (f": {self.first}" if self.first else "")


def entries(text: str) -> list[Entry]:
    """Returns the entries of a list; one row may name several functions."""
    made = []
    for row in tomllib.loads(text).get("lines", []):
        names = row.pop("functions", None) or [row.pop("function")]
        made += [Entry(function=name, **row) for name in names]
    return made


def place(entry: Entry, source: Source) -> str:
    """Finds the entry's lines. Returns what is wrong with it, or ""."""
    body = [line for line in range(1, len(source.text) + 1) if source.function(line) == entry.function]
    if not body:
        return f"{entry.told()}: there is no such function"
    if entry.first:
        texts = {line: source.text[line - 1].strip() for line in body}
        begins = [line for line in body if texts[line] == entry.first and texts.get(line - 1, "") == entry.after]
        if len(begins) != 1:
            return f"{entry.told()}: the line stands there {len(begins)} times below {entry.after!r}"
        ends = [line for line in body if line >= begins[0] and texts[line] == (entry.last or entry.first)]
        if not ends:
            return f"{entry.told()}: no line {entry.last!r} follows"
        body = list(range(begins[0], ends[0] + 1))
    entry.lines = [line for line in body if line in source.lines]
    ran = [line for line in entry.lines if source.lines[line]]
    if ran and not entry.sometimes:
        return f"{entry.told()}: line {ran[0]} runs now; take it off the list"
    return "" if entry.lines else f"{entry.told()}: no code is there"


def check(listed: list[Entry], sources: dict[str, Source]) -> tuple[list[str], dict[str, list[int]]]:
    """Returns what is wrong with the list, and the lines that did not run and that it does not know, by file."""
    wrong = []
    known: dict[str, set[int]] = {}
    for entry in listed:
        if entry.file not in sources:
            wrong.append(f"src/{entry.file}: there is no such file")
            continue
        problem = place(entry, sources[entry.file])
        if problem:
            wrong.append(problem)
        known.setdefault(entry.file, set()).update(entry.lines)
    unknown = {name: [line for line, count in sorted(source.lines.items())
                      if count == 0 and line not in known.get(name, set())] for name, source in sources.items()}
    return wrong, {name: lines for name, lines in unknown.items() if lines}


def drafted(sources: dict[str, Source], unknown: dict[str, list[int]]) -> str:
    """Returns entries for lines that the list does not know, whose reasons are for a person to write."""
    rows = []
    for name, lines in sorted(unknown.items()):
        source = sources[name]
        counted = sorted(source.lines)
        for function, missing in groupby(lines, key=source.function):
            left = list(missing)
            whole = [line for line in counted if source.function(line) == function]
            if left == whole:
                rows.append({"file": name, "function": function})
                continue
            # A run ends where a line that runs lies between.
            for _, run in groupby(enumerate(left), key=lambda pair: counted.index(pair[1]) - pair[0]):
                first, *others = [line for _, line in run]
                rows.append({"file": name, "function": function, "after": source.text[first - 2].strip(),
                             "first": source.text[first - 1].strip()})
                if others:
                    rows[-1]["last"] = source.text[others[-1] - 1].strip()
    return "\n".join("[[lines]]\n" + "".join(f"{key} = {quoted(value)}\n" for key, value in row.items()) + 'why = ""\n'
                     for row in rows)


def quoted(text: str) -> str:
    """Returns a string of TOML."""
    return f"'{text}'" if '"' in text or "\\" in text else f'"{text}"'


def table(listed: list[Entry]) -> str:
    """Returns the table of docs/dev/coverage.md."""
    rows = ["| file | function | lines | why no test runs them |", "|---|---|---|---|"]
    for (file, why), group in groupby(listed, key=lambda entry: (entry.file, entry.why)):
        parts = [(entry.function, f"`{entry.first}`".replace("|", "\\|") if entry.first else "all") for entry in group]
        functions = ", ".join(dict.fromkeys(f"`{name}`" for name, _ in parts))
        rows.append(f"| `{file}` | {functions} | {', '.join(dict.fromkeys(text for _, text in parts))} | {why} |")
    return "\n".join(rows)
