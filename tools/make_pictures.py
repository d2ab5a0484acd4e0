#!/usr/bin/env python3
"""Draws docs/images/NAME.svg from what commands print about a small program. Run it with build/venv/bin/python.

Needs ./hakmem build, and ./hakmem build cycles for the cycle profile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
COLUMNS = 132
LINES_MOST = 46
# The interpreter itself. "python3" may be a script that starts it, and then the script's own processes would print
# their statistics too.
PYTHON = subprocess.run(["python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))"],
                        stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

# Allocates something of every size in a few threads, and frees a part of it.
PROGRAM = """
import json, sys, threading, time
documents = [json.dumps({"name": "n" * (i % 50), "values": list(range(i % 90))}) for i in range(40000)]
trees = [json.loads(text) for text in documents[:15000]]
large = [bytearray(size << 10) for size in (40, 90, 300, 700, 3000, 9000)]
def work():
    kept = [json.loads(text) for text in documents[:3000]]
    time.sleep(60)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(1.5)
del documents[1::2]
print("ready", flush=True)
if len(sys.argv) == 1: time.sleep(60)
"""


def draw(name: str, title: str, shown: str, printed: str) -> None:
    """Draws one picture: the command line and what it printed, at most LINES_MOST lines."""
    lines = printed.rstrip().split("\n")
    if len(lines) > LINES_MOST:
        lines = [*lines[:LINES_MOST], f"... {len(lines) - LINES_MOST} more lines"]
    text = Text.from_ansi("\n".join(lines))
    # A command that writes to a pipe does not fold its tables, so the picture has the width of the longest line.
    width = max(COLUMNS, *(line.cell_len for line in text.split()))
    console = Console(record=True, width=width, file=open(os.devnull, "w", encoding="utf-8"), force_terminal=True)
    console.print(Text(f"$ {shown}", style="bold"))
    console.print(text, soft_wrap=False)
    console.save_svg(str(IMAGES / f"{name}.svg"), title=title)
    print(IMAGES / f"{name}.svg")


def run(words: Sequence[str | Path], env: dict[str, str] | None = None) -> str:
    """Returns the output of a command; ends this program if the command fails."""
    done = subprocess.run(words, env={**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", **(env or {})},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Runs the command."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    library = ROOT / "build/release/lib/libhakmem.so"
    hakmem = [sys.executable, "-m", "hakmem"]
    with tempfile.TemporaryDirectory() as folder:
        script, profile = Path(folder, "server.py"), Path(folder, "heap.gz")
        script.write_text(PROGRAM)
        env = {**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}
        with subprocess.Popen([PYTHON, script], env=env, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(0.2)
                pid = str(process.pid)
                top = run([*hakmem, "look", pid, "--svg", IMAGES / "top.svg"])
                print(top.strip() or IMAGES / "top.svg")
                for name in ("stats", "explain"):
                    draw(name, f"hakmem look --{name}", f"hakmem look {pid} --{name}",
                         run([*hakmem, "look", pid, f"--{name}"]))
                draw("doctor", "hakmem doctor", f"hakmem doctor {pid}", run([*hakmem, "doctor", pid]))
                gdb = ["gdb", "-nx", "-batch", "-p", pid, "-ex", f"source {ROOT}/python/hakmem/gdb/hakmem-gdb.py",
                       "-ex", "hakmem info", "-ex", "hakmem classes"]
                text = run(gdb)
                draw("gdb", "hakmem-gdb.py", "hakmem info, hakmem classes", text[text.index("HAKMEM"):]
                     if "HAKMEM" in text else text)
            finally:
                process.kill()
        run([PYTHON, script, "once"], {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc",
                                          "HAKMEM_HEAP_PROFILE": str(profile), "HAKMEM_HEAP_PROFILE_RATE": "65536"})
        draw("heap", "hakmem heap", "hakmem heap heap.gz", run([*hakmem, "heap", profile]))
        text = run([PYTHON, script, "once"], {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc",
                                                 "HAKMEM_SHOW_STATS": "1"})
        draw("statistics", "HAKMEM_SHOW_STATS=1", "./hakmem run --stats -- python3 server.py", text)
        cycles = ROOT / "build/cycles/lib/libhakmem.so"
        if cycles.exists():
            text = run([PYTHON, script, "once"], {"LD_PRELOAD": str(cycles), "PYTHONMALLOC": "malloc",
                                                     "HAKMEM_TINY_PROFILE": "1"})
            draw("cycles", "HAKMEM_TINY_PROFILE=1", "./hakmem run --profile -- python3 server.py", text)
        else:
            sys.exit(f"{cycles} is not there: ./hakmem build cycles")


main()
