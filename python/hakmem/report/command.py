"""hakmem bench report: a result file as a page or as pictures."""

from __future__ import annotations

from pathlib import Path

import click

from hakmem.extras import extra
from hakmem.parameters import FILE, File
from hakmem.report.result import ResultError, load_result, stem_of


@click.command()
@click.argument("result", type=File(path_type=Path))
@click.option("--html", type=FILE, metavar="FILE",
              help="Write the page here. Without --html and --pictures: beside the result.")
@click.option("--pictures", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Write each chart here as PNG and SVG.")
def report(result: Path, html: Path | None, pictures: Path | None) -> None:
    """Make one self-contained HTML page, or pictures, of the result file RESULT."""
    try:
        content = load_result(result)
    except ResultError as error:
        raise click.ClickException(str(error)) from error
    if html is None and pictures is None:
        html = result.with_name(stem_of(result) + ".html")
    # Bad input is refused before importing the chart libraries, which takes a second.
    try:
        if html is not None:
            with extra("report", "a page with charts"):
                from hakmem.report.page import write_page
            write_page(content, html)
            click.echo(html)
        if pictures is not None:
            with extra("report", "a picture of a chart"):
                from hakmem.report.pictures import write_pictures
            for path in write_pictures(content, pictures, stem_of(result)):
                click.echo(path)
    except OSError as error:
        where = error.filename or html or pictures
        raise click.ClickException(f"{where}: cannot be written: {error.strerror}") from error
