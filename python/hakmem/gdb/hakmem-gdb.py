"""Makes the commands `hakmem ...` in gdb: source this file, or put `source .../hakmem-gdb.py` into ~/.gdbinit.

gdb has a Python of its own, without the package hakmem and the packages it needs. They are taken from where this file
lies: a checkout with its build/venv, or the environment in which the wheel was installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gdb


def library_folders(package: Path) -> list[Path]:
    """Returns where Python finds hakmem and the packages it needs."""
    parent = package.parent
    if parent.name == "python":
        return [parent, *sorted(parent.parent.glob("build/venv/lib/python3.*/site-packages"))]
    return [parent]


def start() -> None:
    """Makes the commands."""
    folders = library_folders(Path(__file__).resolve().parent.parent)
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    try:
        import hakmem.gdb.commands  # noqa: F401 - makes the commands
    except ImportError as error:
        raise gdb.GdbError(
            f"hakmem-gdb.py: {error}. It takes pyelftools for gdb's Python; looked for in "
            f"{', '.join(str(folder) for folder in folders)}. In a checkout `./hakmem stats --help` makes build/venv, "
            "which "
            f"has it; elsewhere install python3-pyelftools") from error


start()
