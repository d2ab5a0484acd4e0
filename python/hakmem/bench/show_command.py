"""The command `hakmem bench show`: the tables of a result again."""

from __future__ import annotations

from pathlib import Path

import click

from hakmem.bench import instructions_command
from hakmem.bench.command import print_as
from hakmem.bench.table import print_result
from hakmem.parameters import File
from hakmem.report.result import ResultError, check_result, read_json


@click.command()
@click.argument("file", type=File(path_type=Path), metavar="RESULT")
@click.option("--csv", "as_csv", is_flag=True, help="Print the samples as CSV.")
def show(file: Path, as_csv: bool) -> None:
    """Print the tables of a result again: .json, .json.xz or .json.gz of a run, or of counted instructions."""
    try:
        result = read_json(file)
        if isinstance(result, dict) and result.get("format") == instructions_command.FORMAT:
            if as_csv:
                raise click.UsageError(f"--csv: {file} holds counts, not samples")
            instructions_command.print_tables(result)
            return
        check_result(result, file)
    except ResultError as error:
        raise click.ClickException(str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise click.ClickException(f"{file}: damaged: {error!r}") from error
    print_as(result, False, as_csv, print_result)
