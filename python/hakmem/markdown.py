"""Writes Markdown for GitHub: tables, and the summary of a job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

# Names the file whose content a job of GitHub Actions shows on its page.
VARIABLE = "GITHUB_STEP_SUMMARY"
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#])")


def cell(text: object) -> str:
    """Returns the text as one line in which nothing is markup."""
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def table(heads: Sequence[str], rows: Iterable[Iterable[object]], right: int = 0) -> list[str]:
    """Returns the lines of a table. The first `right` columns are numbers."""
    lines = ["| " + " | ".join(heads) + " |",
             "|" + "|".join("---:" if place < right else "---" for place in range(len(heads))) + "|"]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]


def target(file: Path | None) -> Path | None:
    """Returns where Markdown goes: the given file, or the job's summary; None if there is neither."""
    return file or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)


def put(file: Path | None, lines: Iterable[str]) -> None:
    """Appends the lines to the target of `file`, if there is one."""
    path = target(file)
    if path is None:
        return
    try:
        with open(path, "a", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n\n")
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from error
