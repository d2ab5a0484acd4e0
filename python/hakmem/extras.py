"""Packages that a few commands need beyond the base installation: the extras of pyproject.toml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Imports packages of the extra `name`, for `what`. If one is missing, the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "hakmem":
            raise
        raise click.ClickException(f"{what} needs the Python package {package}: pip install 'hakmem[{name}]'") from None
