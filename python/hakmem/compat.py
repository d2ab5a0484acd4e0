"""Functions that the tools use and Python 3.9 lacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
def zip_strict(first: Iterable[A], second: Iterable[B], /) -> Iterator[tuple[A, B]]:
    ...


@overload
def zip_strict(first: Iterable[A], second: Iterable[B], third: Iterable[C], /) -> Iterator[tuple[A, B, C]]:
    ...


@overload
def zip_strict(*sequences: Iterable[A]) -> Iterator[tuple[A, ...]]:
    ...


def zip_strict(*sequences: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """zip() of sequences of one length; ValueError where they differ."""
    if sys.version_info >= (3, 10):
        return zip(*sequences, strict=True)  # novm
    listed = [tuple(sequence) for sequence in sequences]
    if len({len(sequence) for sequence in listed}) > 1:
        raise ValueError(f"sequences of {', '.join(str(len(sequence)) for sequence in listed)} items")
    return zip(*listed)


if sys.version_info >= (3, 10):
    bit_count = int.bit_count  # novm
else:
    def bit_count(number: int) -> int:
        """Returns how many bits of a number are set."""
        return bin(number).count("1")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the content of a TOML file. Only checkouts have such files, and they require a newer Python."""
    if sys.version_info >= (3, 11):
        import tomllib  # novm

        with open(path, "rb") as file:
            return tomllib.load(file)
    import click  # gdb's Python imports this file too, and has none

    raise click.ClickException(f"reading {path} takes Python 3.11 or newer")
