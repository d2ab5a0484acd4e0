"""Fixtures: hostile.c, which all tests here read, and a process on HAKMEM, whose descriptor serves as a model."""

import subprocess
import sys

import blackbox
import pytest

sys.path[:0] = [
    str(blackbox.REPOSITORY / folder) for folder in ("tests/tools/serve", "tests/tools/top", "tests/tools/live")
]

import hostile as programs  # noqa: E402


@pytest.fixture(scope="session")
def program(compiled):
    return compiled(programs.SOURCE)


@pytest.fixture
def target(program):
    with programs.hostile(program) as made:
        yield made


@pytest.fixture(scope="session")
def honest(library):
    """The PID of a process on HAKMEM that sleeps."""
    process = subprocess.Popen(["/bin/cat"], env=blackbox.environment(preload=library), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    process.stdin.write(b"x")
    process.stdin.flush()
    process.stdout.read(1)
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture(scope="session")
def honest_rows(honest):
    """The rows of its descriptor."""
    from hakmem.live import ProcessMemory, find

    return programs.rows_of(find(ProcessMemory(honest)))


@pytest.fixture
def rows(honest_rows, target):
    """The same rows with all roots in the hostile process's zeroed memory, half a MiB apart."""
    places = iter(range(target.arena, target.arena + (16 << 20), 1 << 19))
    return [(kind, name, next(places) if kind == programs.ROOT else value, size, count)
            for kind, name, value, size, count in honest_rows]
