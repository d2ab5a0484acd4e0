"""Fixtures: the libraries that replace other allocators, and programs linked with them."""

from pathlib import Path

import pytest

import blackbox

FOLDER = Path(__file__).resolve().parent
SEATS = blackbox.INCLUDE_FOLDER / "hakmem" / "seats"


@pytest.fixture(scope="session")
def je_library():
    return blackbox.LIBRARY_FOLDER / "libhakmem-je.so"


@pytest.fixture(scope="session")
def tc_library():
    return blackbox.LIBRARY_FOLDER / "libhakmem-tc.so"


@pytest.fixture(scope="session")
def linked(compiled):
    """linked(source, library, *flags) builds a program of this folder and links it with lib/library."""

    def build(source, library="libhakmem-je.so", *flags):
        folder = blackbox.LIBRARY_FOLDER
        return compiled(FOLDER / source, f"-I{SEATS}", *flags, folder / library, f"-Wl,-rpath,{folder}")

    return build


@pytest.fixture(scope="session")
def in_static(compiled):
    """The same with libhakmem-je.a, beside the C library's malloc."""

    def build(source, *flags):
        return compiled(FOLDER / source, f"-I{SEATS}", *flags, blackbox.LIBRARY_FOLDER / "libhakmem-je.a")

    return build
