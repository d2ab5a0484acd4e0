"""The base of our kinds of parameters: click.ParamType, with the type of its values in brackets.

click before 8.4 does not take brackets at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click import ParamType as Parameter
else:
    class Parameter(click.ParamType):
        """A kind of parameter."""

        def __class_getitem__(cls, kind):
            return cls

__all__ = ["Parameter"]
