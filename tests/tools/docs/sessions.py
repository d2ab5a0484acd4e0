"""Runs the commands that a document gives its reader: all blocks in order, in one shell, in a folder of its own."""

import os
import re
import shlex
import sys
from pathlib import Path

import blackbox
from documents import Block, Document

MARK = "@@ block at line "
# Paths that a reader replaces, or programs that a reader has installed.
PATHS = {
    "/path/to/libhakmem.so": blackbox.LIBRARY,
    "/usr/lib/hakmem/libhakmem.so": blackbox.LIBRARY,
    "/path/to/hakmem/build/release": blackbox.LIBRARY_FOLDER.parent,
    "/path/to/hakmem": blackbox.REPOSITORY,
}


def without_comment(line: str) -> str:
    return re.sub(r"\s+#\s.*", "", line).strip()


def commands(folder: Path) -> None:
    """A reader's commands: `./hakmem`, the checkout's script, in the folder, and `hakmem`, as installed, on PATH.

    Both use this build. The script would build another one, the installed command would look for its own.
    """
    (folder / "path").mkdir()
    build, repository = (shlex.quote(str(path)) for path in (blackbox.LIBRARY_FOLDER.parent, blackbox.REPOSITORY))
    for script, words in ((folder / "hakmem", f"{repository}/hakmem"),
                          (folder / "path/hakmem", f"{shlex.quote(sys.executable)} -m hakmem")):
        script.write_text(f"#!/bin/sh\nHAKMEM_BUILD_DIR={build} PYTHONPATH={repository}/python exec {words} \"$@\"\n")
        script.chmod(0o755)


def script_of(document: Document, left_out: set[str], replaced: dict[str, str], prelude: str) -> str:
    parts = []
    for block in document.blocks:
        if block.language == "sh":
            lines = [line for line in block.text.splitlines() if without_comment(line) not in left_out]
            parts += [f"echo; echo {shlex.quote(MARK + str(block.line))}", *lines]
        elif block.file is not None:
            parts += [f"mkdir -p {shlex.quote(os.path.dirname(block.file) or '.')}",
                      f"cat >{shlex.quote(block.file)} <<'END OF THE FILE'", block.text, "END OF THE FILE"]
    script = "\n".join(parts) + "\n"
    for old, new in {**PATHS, **replaced}.items():
        # A reader replaces a word in capitals. In LD_PRELOAD it is part of a name.
        script = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, new=new: str(new), script)
    return "\n".join(["exec 2>&1", "set -e", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT", prelude, script])


def run(document: Document, folder: Path, left_out: set[str], replaced: dict[str, str], prelude: str) -> dict[int, str]:
    """{line of a block: its output}. A command that fails fails the test."""
    commands(folder)
    cargo = Path.home() / ".cargo/bin"
    env = {"PATH": f"{folder / 'path'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{cargo}", "TMPDIR": str(folder)}
    script = folder / "path" / "session.sh"
    script.write_text(script_of(document, left_out, replaced, prelude))
    result = blackbox.run(["bash", script], cwd=folder, env=env, timeout=60)
    printed, line = {}, 0
    for row in result.stdout.splitlines():
        if row.startswith(MARK):
            line = int(row.removeprefix(MARK))
        printed[line] = printed.get(line, "") + ("" if row.startswith(MARK) else row + "\n")
    assert result.status == 0, f"{document.name}, the block at line {line} or before it failed\n{result.report()}"
    return printed


def expectations(document: Document, left_out: set[str]) -> list[tuple[Block, str]]:
    """Each sh block with the next text block, without blocks of which nothing is run."""
    pairs, last = [], None
    for block in document.blocks:
        if block.language == "text" and last is not None:
            pairs.append((last, block.text))
        runs = block.language == "sh" and {without_comment(line) for line in block.text.splitlines()} - left_out
        last = block if runs else None
    return pairs
