"""`hakmem doctor`: whether HAKMEM serves a process as it should, and whether the machine lets it."""

import click


class DoctorError(click.ClickException):
    """What is asked for cannot be looked at."""
