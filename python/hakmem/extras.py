"""Packages that a few commands need beyond the base installation: the extras of pyproject.toml.

No registry has hakmem, so a hint names the packages themselves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

# Where a package of the system has this module, and by extra the packages of Debian, which Fedora has too, and of PyPI.
SYSTEM = Path("/usr/lib/hakmem")
DEBIAN = {"serve": "python3-aiohttp", "leaks": "python3-numpy"}
PYPI = {"top": "rich textual", "serve": "aiohttp", "trace": "numpy", "leaks": "numpy",
        "report": "altair vl-convert-python"}


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Imports packages of the extra `name`, for `what`. If one is missing, the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "hakmem":
            raise
        raise click.ClickException(f"{what} needs the Python package {package}: {how_to_get(name)}") from None


def how_to_get(name: str) -> str:
    """Returns how the packages of an extra are installed. The Python of a system takes the system's packages only."""
    from_pypi = f"pip install {PYPI[name]}"
    if not Path(__file__).resolve().is_relative_to(SYSTEM):
        return from_pypi
    if name not in DEBIAN:
        return f"{from_pypi}, in a virtual environment with HAKMEM's wheel"
    return f"{'apt-get' if shutil.which('apt-get') else 'dnf'} install {DEBIAN[name]}"
