"""Runs the marked commands of a document: all blocks in order, in one shell, in a folder of its own."""

import os
import re
import shlex
import socket
import sys
from pathlib import Path

import blackbox
from documents import Block, Document

MARK = "@@ block at line "
# Paths that a reader replaces.
PATHS = {
    "/path/to/libhakmem.so": blackbox.LIBRARY,
    "/path/to/libhakmem-secure.so": blackbox.LIBRARY_FOLDER / "libhakmem-secure.so",
    "/usr/lib/hakmem/libhakmem.so": blackbox.LIBRARY,
    "/path/to/hakmem/build/release": blackbox.LIBRARY_FOLDER.parent,
    "/path/to/hakmem": blackbox.REPOSITORY,
}
# Words that a reader replaces. The program allocates enough for samples of the heap profile, which are 512 KiB apart.
TAKES = "python3 -c 'kept = [bytes(200000) for _ in range(200)]'"
WORDS = {"PROGRAM ARGUMENTS": TAKES, "PROGRAM": TAKES, "PID": "$PID", "FILE": "file"}
SET_UPS = Path(__file__).with_name("set_ups.sh")


def install_commands(folder: Path) -> None:
    """A reader's `./hakmem` and `hakmem`. Both are the tools of this build: the checkout's script would build another.

    A doctor who found something ends with 1, and what he finds depends on the machine.
    """
    (folder / "path").mkdir()
    build, repository = (shlex.quote(str(path)) for path in (blackbox.LIBRARY_FOLDER.parent, blackbox.REPOSITORY))
    tool = f"{shlex.quote(sys.executable)} -m hakmem \"$@\""
    for script in folder / "hakmem", folder / "path/hakmem":
        script.write_text(f"#!/bin/sh\nexport HAKMEM_BUILD_DIR={build} PYTHONPATH={repository}/python\n"
                          f"test \"$1\" != doctor || {{ {tool} || test $? -eq 1; exit; }}\nexec {tool}\n")
        script.chmod(0o755)


def free_port() -> int:
    """For the server that docs/jemalloc.md starts. Another checkout runs the same test at once, from another number;
    no port is one that the kernel hands out by itself."""
    for port in range(20000 + os.getpid() % 10000, 32000):
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no port is free")


def script_of(document: Document) -> str:
    parts, started = [], set()
    for block in document.blocks:
        if "run" in block.marks:
            set_up = block.marks["run"]
            if set_up and set_up not in started:
                started.add(set_up)
                parts.append(set_up)
            parts += [f"echo; echo {shlex.quote(MARK + str(block.line))}", block.text]
        elif "file" in block.marks:
            name = shlex.quote(block.marks["file"])
            parts += [f"mkdir -p \"$(dirname {name})\"", f"cat >{name} <<'END OF THE FILE'", block.text,
                      "END OF THE FILE"]
    script = "\n".join(parts) + "\n"
    for old, new in {**PATHS, **WORDS, "7399": free_port()}.items():
        # A reader replaces a word in capitals. In LD_PRELOAD it is part of a name.
        script = re.sub(rf"(?<![\w$]){re.escape(old)}(?!\w)", lambda _, new=new: str(new), script)
    return "\n".join(["exec 2>&1", "set -e", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT",
                      SET_UPS.read_text(), script])


def run(document: Document, folder: Path) -> dict[int, str]:
    """{line of a block: its output}. A command that fails fails the test."""
    install_commands(folder)
    path = f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{Path.home() / '.cargo/bin'}"
    # The optimiser takes seconds of a crate's build, and changes nothing that is looked at here.
    env = blackbox.compile_cache(folder) | {"TMPDIR": str(folder), "CFLAGS": "-O0"}
    compilers = env["PATH"].partition(":")[0] + ":" if "PATH" in env else ""
    env["PATH"] = f"{folder / 'path'}:{compilers}{path}"
    script = folder / "path" / "session.sh"
    script.write_text(script_of(document))
    result = blackbox.run(["bash", script], cwd=folder, env=env, timeout=60)
    printed, line = {}, 0
    for row in result.stdout.splitlines():
        if row.startswith(MARK):
            line = int(row.removeprefix(MARK))
        printed[line] = printed.get(line, "") + ("" if row.startswith(MARK) else row + "\n")
    assert result.status == 0, f"{document.name}, the block at line {line} or before it failed\n{result.report()}"
    return printed


def expectations(document: Document) -> list[tuple[Block, str]]:
    """(a block that ran, the output that the document shows of it)."""
    pairs, last = [], None
    for block in document.blocks:
        if "output" in block.marks:
            assert last is not None, f"{document.name}:{block.line}: no block before this one runs"
            pairs.append((last, block.text))
        if block.language == "sh":
            last = block if "run" in block.marks else None
    return pairs
