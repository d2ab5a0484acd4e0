"""What the commands' parameters share.

Parameter is the base of our kinds of parameters: click.ParamType, with the type of its values in brackets. click before
8.4 does not take brackets at run time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import ParamType as Parameter
else:
    class Parameter(click.ParamType):
        """A kind of parameter."""

        def __class_getitem__(cls, kind):
            return cls

__all__ = ["FILE", "File", "Parameter", "Range", "debug_dir_option", "split_names"]


class File(click.Path):
    """The path of a file. An empty word, as a shell makes of a variable that is not set, is none: it would mean the
    present folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, of the type that path_type names."""
        if value == "":
            self.fail("the name of a file is wanted", param, ctx)
        return super().convert(value, param, ctx)


FILE = File(path_type=Path, dir_okay=False)

debug_dir_option = click.option("--debug-dir", "debug_folders", multiple=True, metavar="FOLDER",
                                type=click.Path(path_type=Path, file_okay=False, exists=True),
                                help="Where separate debug files are, besides /usr/lib/debug.")


def split_names(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    """Splits a comma-separated option (click callback)."""
    return [name for name in value.split(",") if name] if value else []


class Range(click.FloatRange):
    """A number in a range. Unlike click's own, it refuses nan, which no comparison puts outside of a range, and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number
