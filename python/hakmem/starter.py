"""Asks hakmem-run (tools/run/run.c). It has the rules of `hakmem run`: what its words mean, which words it refuses, and
which environment the program gets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from hakmem import paths


@dataclass
class Plan:
    """What words of `hakmem run` ask for. command and environment: what runs them."""

    command: tuple[str, ...]
    environment: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)  # variables that the program gets in addition
    program: str = ""
    budget: str | None = None
    markdown: Path | None = None
    profile: bool = False  # --heap-profile is among the words
    why: str | None = None  # HAKMEM cannot take effect


def ask(*words: str | Path) -> str:
    """Returns what hakmem-run prints. Ends the command as it ends, if it refuses."""
    file = paths.starter()
    if not file.is_file():
        raise click.ClickException(paths.absent(file))
    done = subprocess.run([file, *words], capture_output=True, check=False)
    click.echo(done.stderr, nl=False, err=True)
    if done.returncode != 0:
        raise click.exceptions.Exit(done.returncode)
    return os.fsdecode(done.stdout)


def plan(words: Sequence[str]) -> Plan:
    """Returns what the words ask for."""
    made = Plan((str(paths.starter()), "run", *words), dict(os.environ))
    for line in ask("plan", *words).split("\0")[:-1]:
        key, _, value = line.partition("=")
        if key == "set":
            name, _, value = value.partition("=")
            made.settings[name] = value
        elif key == "markdown":
            made.markdown = Path(value)
        elif key == "profile":
            made.profile = True
        else:
            setattr(made, key, value)
    return made


def obstacle(program: str, library: str | Path) -> str | None:
    """Returns a sentence on why the library cannot take effect in the program; None if it can, or if that cannot be
    told. Ends the command as a shell does if the program cannot be run."""
    return ask("why", library, program) or None
