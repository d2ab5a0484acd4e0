"""The fixture of the program with known sites, which the tests here profile."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def sites(compiled, library):
    """Built so that frame pointers also find its stacks."""
    return compiled(HERE / "sites.c", library, f"-Wl,-rpath,{library.parent}", "-fno-omit-frame-pointer")
