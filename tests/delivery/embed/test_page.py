"""Protects docs/embed.md: it has the commands and lines that the tests in this folder run."""

import re
from pathlib import Path

import pytest

from conftest import ROOT

HERE = Path(__file__).resolve().parent
PAGE = (ROOT / "docs/embed.md").read_text()


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]


def blocks(title):
    return re.findall(r"^```\w+\n(.*?)^```", section(title), re.M | re.S)


def test_meson():
    (block,) = blocks("Meson")
    project = (HERE / "meson/meson.build").read_text().replace("with_override", "program")
    assert all(line in project for line in block.splitlines())


def test_bazel():
    _, build = blocks("Bazel")
    assert build == (HERE / "bazel/BUILD.bazel").read_text()


def test_fetch_content():
    fetch = (ROOT / "tests/delivery/install/test_install.py").read_text()
    for line in section("CMake").splitlines():
        if line.startswith(("include(FetchContent", "FetchContent_")):
            assert line.replace("/path/to/CHECKOUT", "{}") in fetch


def flat(text):
    """Words separated by blanks, from a command or a list."""
    return re.sub(r"[^\w@=./:*-]+", " ", text)


@pytest.mark.parametrize("title, commands", [
    ("Conan", ["conan create", "-o hakmem/*:override=True"]),
    ("Go", ["tar -xzf", "go get hakmem.internal/hakmem@latest", "go build -tags hakmem_override",
            "go test hakmem.internal/hakmem"]),
    ("Zig", ["zig test"]),
])
def test_commands(title, commands):
    tests = flat("".join((HERE / name).read_text() for name in ("test_recipes.py", "test_packages.py")))
    tests = tests.replace("*tags ", "-tags hakmem_override ").replace(" -v ", " ")
    for command in commands:
        assert command in flat(section(title)), command
        assert command in tests, command
