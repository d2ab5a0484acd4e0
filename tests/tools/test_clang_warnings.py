"""Every source of the library compiles without a warning under clang too, with the flags that gcc gets."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release"))


def clang_problems(entry):
    """What clang says of one entry of compile_commands.json."""
    words = shlex.split(entry["command"])[1:]
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
