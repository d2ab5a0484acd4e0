"""The command `hakmem ps`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.ps.survey import Row

HEADINGS = ("PID", "NAME", "VERSION", "RSS", "LIVE", "FREE", "COMMAND")
LEFT = ("NAME", "VERSION")


@click.command("ps")
@click.option("--json", "as_json", is_flag=True, help="As JSON, in bytes.")
def ps(as_json: bool) -> None:
    """List the processes that run on HAKMEM, the largest first.

    RSS is what the kernel counts. LIVE is the blocks that the program holds. FREE is free memory that HAKMEM keeps for
    reuse and could give back. Your own processes need no rights. A last line says how many others could not be read."""
    from hakmem.live.memory import LiveError, check_proc
    from hakmem.ps.survey import survey

    try:
        check_proc()
    except LiveError as error:
        raise click.ClickException(str(error)) from error
    found = survey()
    if as_json:
        click.echo(json.dumps({"processes": [asdict(row) for row in found.rows], "unseen": found.unseen}, indent=2))
        return
    if found.rows:
        print_rows(found.rows)
    else:
        click.echo("No process that can be looked at runs on HAKMEM; hakmem run -- PROGRAM starts one.")
    if found.unseen:
        what = "1 process" if found.unseen == 1 else f"{found.unseen} processes"
        if os.geteuid() == 0:
            why = "could not be looked at: kept from all, or this root lacks CAP_SYS_PTRACE"
        else:
            why = "of other users, or kept from all, could not be looked at; root sees more"
        click.echo(f"hakmem: {what} {why}", err=True)


def print_rows(rows: Iterable[Row]) -> None:
    """Prints one line for each process. On a terminal the command is cut to keep it on one line."""
    from hakmem.clean import clean

    lines: list[tuple[str, ...]] = [HEADINGS]
    for row in rows:
        figures = ("?" if count is None else bytes_column(count) for count in (row.rss, row.live, row.reclaimable))
        lines.append((str(row.pid), clean(row.name), row.version or "?", *figures, clean(row.problem or row.command)))
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS) - 1)]
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        cells = [cell.ljust(width) if heading in LEFT else cell.rjust(width)
                 for heading, cell, width in zip(HEADINGS, line, widths)]
        click.echo("  ".join([*cells, line[-1]])[:most])
