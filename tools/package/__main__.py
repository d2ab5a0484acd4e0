"""./hakmem package: makes everything that users install, in one folder, with checksums. A commit always gives the same
bytes, on any machine and at any time."""

import hashlib
import sys
from pathlib import Path

import click

from kinds import KINDS, with_needs
from plan import Failed, Plan

ROOT = Path(__file__).resolve().parents[2]


def write_sums(folder: Path) -> None:
    """Writes SHA256SUMS over every file of the folder, in the format of sha256sum -c."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


@click.command(context_settings={"help_option_names": ["--help", "-h"]})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "dist")
@click.option("--only", multiple=True, type=click.Choice([kind.name for kind in KINDS]), metavar="KIND",
              help="Make only this kind and what it needs; may be repeated.")
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build/package", hidden=True)
@click.option("--cached", is_flag=True, hidden=True)
def main(folder: Path, only: tuple[str, ...], work: Path, cached: bool) -> None:
    """Make what users install into FOLDER (dist/), with SHA256SUMS."""
    plan = Plan(ROOT, work.resolve(), folder.resolve(), cached)
    for each in plan.work, plan.dist:
        try:
            each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.ClickException(f"cannot make {each}: {error.strerror}") from error
    for kind in with_needs(list(only) or [kind.name for kind in KINDS]):
        click.echo(f"hakmem: making {kind.name}: {kind.what}", err=True)
        try:
            kind.make(plan)
        except Failed as failed:
            click.echo(f"hakmem: {kind.name}: {failed}", err=True)
            sys.exit(1)
    write_sums(plan.dist)
    for path in sorted(plan.dist.iterdir()):
        if path.is_file():
            click.echo(f"{path.stat().st_size:>12,}  {path.name}")


main(prog_name="hakmem package")
