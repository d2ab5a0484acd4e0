"""`hakmem doctor`: checks whether HAKMEM serves a process as it should, and whether the machine lets it."""

import click


class DoctorError(click.ClickException):
    """The process or machine cannot be examined."""
