"""Makes the commands `hakmem ...` in gdb: source this file, or put `source .../hakmem-gdb.py` into ~/.gdbinit.

gdb brings a Python of its own, which has neither the package hakmem nor what that stands on: they are taken from where
this file lies, a checkout with its build/venv or the environment in which the wheel was installed.
"""

import sys
from pathlib import Path

import gdb


def library_folders(package):
    """Where Python finds hakmem and what it needs."""
    parent = package.parent
    if parent.name == "python":
        return [parent, *sorted(parent.parent.glob("build/venv/lib/python3.*/site-packages"))]
    return [parent]


def start():
    folders = library_folders(Path(__file__).resolve().parent.parent)
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    try:
        import hakmem.gdb.commands  # noqa: F401 - makes the commands
    except ImportError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise gdb.GdbError(
            f"hakmem-gdb.py: {error}. It takes numpy and pyelftools for gdb's Python, which is {version}; looked for "
            f"in {', '.join(str(folder) for folder in folders)}. In a checkout `./hakmem bench --help` makes "
            f"build/venv, "
            f"which has "
            f"them if its Python is {version} too; elsewhere install python3-numpy and python3-pyelftools") from error


start()
