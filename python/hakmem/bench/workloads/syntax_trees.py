"""syntax_trees.py FOLDER ROUNDS: parses, compiles and unparses the Python files of the folder, ROUNDS times.

Ends with status 1 when an unparsed file does not parse to the same tree, or the answers are not those of expected.json.
syntax_trees.py FOLDER answers prints the answers, which depend on the version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType


def count_code(code: CodeType) -> int:
    """The code objects in a code object, itself too."""
    return 1 + sum(count_code(constant) for constant in code.co_consts if hasattr(constant, "co_code"))


def one_round(files: Iterable[Path]) -> dict[str, Any]:
    """Parses the files once. Returns the answers."""
    answers: dict[str, Any] = {"nodes": 0, "code": 0}
    digest = hashlib.sha256()
    for path in files:
        tree = ast.parse(path.read_bytes(), path.name)
        answers["nodes"] += sum(1 for _ in ast.walk(tree))
        answers["code"] += count_code(compile(tree, path.name, "exec"))
        written = ast.unparse(tree)
        digest.update(written.encode())
        if ast.dump(ast.parse(written)) != ast.dump(tree):
            sys.exit(f"syntax_trees.py: {path.name} changed its meaning when it was written")
    answers["digest"] = digest.hexdigest()
    return answers


def main(folder: str, rounds: str) -> None:
    """Runs the rounds and checks their answers."""
    files = sorted(Path(folder).glob("*.py"))
    if rounds == "answers":
        print(json.dumps(one_round(files)))
        return
    expected = json.loads(Path(folder, "expected.json").read_text(encoding="utf-8"))
    for _ in range(int(rounds)):
        found = one_round(files)
        if found != expected:
            sys.exit(f"syntax_trees.py: wrong answer: {found}, expected {expected}")
    print(found["digest"])


main(*sys.argv[1:])
