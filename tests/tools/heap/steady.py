"""Runs steady.c on HAKMEM without any option."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

from commanded import Commanded, commanded

SOURCE = Path(__file__).with_name("steady.c")
# The usual flags: stacks are found by unwind tables.
FLAGS = ("-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-pthread")


@contextmanager
def steady(program, library, **variables):
    with commanded(Commanded, program, library, variables, stderr=subprocess.PIPE) as running:
        yield running
