"""Fixtures of the black-box tests: a compiler for their small programs, and the libraries under test."""

import hashlib

import pytest

import blackbox


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled(source, *flags, shared=False) builds a test's program once a session and returns its path."""
    folder = tmp_path_factory.mktemp("programs")
    built = {}

    def build(source, *flags, shared=False):
        key = (str(source), tuple(map(str, flags)), shared)
        if key not in built:
            digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]
            output = folder / f"{source.stem}-{digest}{'.so' if shared else ''}"
            built[key] = blackbox.compile_program(source, output, *flags, shared=shared)
        return built[key]

    return build


@pytest.fixture(scope="session")
def library():
    """The shared library under test."""
    assert blackbox.LIBRARY.exists(), f"{blackbox.LIBRARY} is not there; build it with ./hakmem build"
    return blackbox.LIBRARY


@pytest.fixture(scope="session")
def override_archive():
    """The static library that brings malloc and its family."""
    path = blackbox.LIBRARY_FOLDER / "libhakmem-override.a"
    assert path.exists(), f"{path} is not there; build it with ./hakmem build"
    return path
