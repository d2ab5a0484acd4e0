"""Protects the library's sources from warnings of clang, with gcc's flags."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blackbox

# Flags that only gcc has.
GCC_ALONE = {"-fno-merge-constants"}
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release"))


def clang_problems(entry):
    """clang's output for one entry of compile_commands.json."""
    words = [word for word in shlex.split(entry["command"])[1:] if word not in GCC_ALONE]
    output = words.index("-o")
    del words[output:output + 2]
    command = ["clang", "-fsyntax-only", "-Werror", *words]
    result = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, timeout=120)
    return result.stderr if result.returncode != 0 else ""


def test_no_warning():
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    sources = blackbox.REPOSITORY / "src"
    entries = [entry for entry in entries if sources in Path(entry["file"]).parents]
    assert {Path(entry["file"]).parent.name for entry in entries} >= {"base", "os", "pool", "front", "api"}
    with ThreadPoolExecutor(2) as pool:
        problems = [problem for problem in pool.map(clang_problems, entries) if problem]
    assert not problems, "\n".join(problems)
