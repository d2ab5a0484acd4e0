"""Checks that a library serves what it is preloaded for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import paths
from hakmem.peers import PeersError

if TYPE_CHECKING:
    from hakmem.peers.steps import Steps

SOURCE = paths.CHECKOUT / "bench/peers/probe.c"
# Without one of these, blocks of one allocator would meet the free of another, or C++ would run on the system's.
NEEDED = ("malloc", "free", "calloc", "realloc", "aligned_alloc", "posix_memalign",
          "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv")
PYTHON_PROGRAM = ("import json, sys; json.loads(json.dumps([{str(i): i} for i in range(20000)])); "
                  "print(any(line.split()[-1] == sys.argv[1] for line in open('/proc/self/maps')))")


def compile_probe(steps: Steps, folder: str | Path) -> Path:
    program = Path(folder) / "probe"
    steps.run("cc", "-std=c17", "-O2", "-Wall", "-Wextra", "-fno-builtin", "-pthread", SOURCE, "-o", program)
    return program


def check_library(steps: Steps, program: Path, library: Path, setting: dict[str, str]) -> tuple[str, ...]:
    """Runs the probe and Python on the library. Returns the names that it serves; one that is needed must be there."""
    env = {**setting, "LD_PRELOAD": str(library)}
    lines = steps.run(program, setting=env).splitlines()
    objects = dict(line.split(" ", 1) for line in lines if " " in line)
    serves = tuple(name for name, path in objects.items() if path != "-" and Path(path).resolve() == library.resolve())
    for name in NEEDED:
        if name not in serves:
            origin = objects.get(name, "-")
            raise PeersError(f"{steps.name}: {library} does not serve {name}: "
                             + ("nothing does" if origin == "-" else f"it comes from {origin}"))
    if lines[-1] != "ok":
        raise PeersError(f"{steps.name}: the probe did not end on {library}; see {steps.log}")
    env["PYTHONMALLOC"] = "malloc"
    mapped = steps.run(sys.executable, "-c", PYTHON_PROGRAM, library.resolve(), setting=env)
    if mapped.strip() != "True":
        raise PeersError(f"{steps.name}: Python with LD_PRELOAD={library} does not have it in /proc/self/maps")
    return serves
