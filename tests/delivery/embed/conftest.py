"""What the tests of embedding share: the sources as a user gets them, and tools in their own Python environment."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
# The parts of a checkout that a project which embeds HAKMEM may need.
PARTS = ("BUILD.bazel", "CMakeLists.txt", "LICENSE", "MODULE.bazel", "meson.build", "cmake", "go", "include",
         "packaging", "src", "tools")
MADE = shutil.ignore_patterns("__pycache__", "build", "hakmem.c", "hakmem.h.gch", "CMakeUserPresets.json")
VERSION = blackbox.run([ROOT / "hakmem", "--version"]).stdout.split()[1]


def call(*words, cwd=None, timeout=120, **env):
    result = blackbox.run(words, cwd=cwd, env=env, timeout=timeout)
    assert result.status == 0, f"{words}\n{result.report()}"
    return result.stdout


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the checkout, without build results."""
    folder = tmp_path_factory.mktemp("sources")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=MADE)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """What `hakmem package` makes for Go and for Zig."""
    folder = tmp_path_factory.mktemp("dist")
    work = tmp_path_factory.mktemp("work")
    call(sys.executable, ROOT / "tools/package", "--work", work, "--only", "go", "--only", "zig", folder)
    return folder


@pytest.fixture(scope="session")
def tools():
    """The folder of the commands in tools/requirements-embed.txt, in their own environment: hundreds of megabytes for
    these tests alone. Remade when the list changes."""
    wanted = ROOT / "tools/requirements-embed.txt"
    folder = ROOT / "build/embed-venv"
    stamp, digest = folder / "made-from", hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", wanted], check=True)
        stamp.write_text(digest)
    return Path(folder) / "bin"
