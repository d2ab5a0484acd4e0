"""Fixtures of the black-box tests: a compiler for their small programs, and the libraries under test. Programs of other
packages that are not installed."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import blackbox
import machine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    """Skips a test whose fixture starts a program that is not installed, with the program's name."""
    try:
        return (yield)
    except FileNotFoundError as failure:
        machine.require_program(failure)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """The same for what the test itself starts."""
    try:
        return (yield)
    except FileNotFoundError as failure:
        machine.require_program(failure)
        raise


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
    """The static library that defines malloc and its family."""
    path = blackbox.LIBRARY_FOLDER / "libhakmem-override.a"
    assert path.exists(), f"{path} is not there; build it with ./hakmem build"
    return path


@pytest.fixture(scope="session")
def installed_tree(tmp_path_factory):
    """The result of `cmake --install`, moved after the installation."""
    folder = tmp_path_factory.mktemp("install")
    blackbox.call("cmake", "--install", os.environ["HAKMEM_BUILD_DIR"], "--prefix", folder / "first")
    return shutil.move(folder / "first", folder / "moved")


@pytest.fixture
def open_folder():
    """A folder that another user can reach, which pytest's own and a checkout in /root are not."""
    made = Path(tempfile.mkdtemp(prefix="hakmem-test-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def ready():
    """ready(words, preload=None, env=None, **more) starts a program and returns its process once it printed "ready".
    Every process ends with the test."""
    running = []

    def start(words, preload=None, env=None, **more):
        process = blackbox.start([str(word) for word in words], env=env, preload=preload, **more)
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        blackbox.stop_session(process)
        process.communicate()
