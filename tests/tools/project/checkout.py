"""Makes a small checkout for tests of the script ./hakmem, which may set it up, race in it and break it."""

import os
import shutil
import zipfile

import blackbox

# The build backend for `pip install -e`, without any other package.
BACKEND = """\
import zipfile

def build_editable(folder, settings=None, metadata=None):
    from pathlib import Path
    name = "hakmem-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as file:
        file.writestr("hakmem.pth", str(Path(__file__).parent) + "\\n")
        for kind, text in (("METADATA", "Metadata-Version: 2.1\\nName: hakmem\\nVersion: 0.0.1\\n"),
                           ("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"), ("RECORD", "")):
            file.writestr(f"hakmem-0.0.1.dist-info/{kind}", text)
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "hakmem"
version = "0.0.1"
"""
MAIN = "import sys, wanted\nprint('tool', *sys.argv[1:])\n"


def tiny_wheel(path):
    """A package for a file of requirements, so that nothing is downloaded. It has the name at the start of the file's
    name."""
    name = path.name.partition("-")[0]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "")
        for kind, text in (("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"),
                           ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"), ("RECORD", "")):
            file.writestr(f"{name}-1.dist-info/{kind}", text)


def make(folder):
    """The script with the least that its set-up needs. Its tools print their arguments."""
    (folder / "tools").mkdir(parents=True)
    (folder / "python/hakmem").mkdir(parents=True)
    shutil.copy(blackbox.REPOSITORY / "hakmem", folder / "hakmem")
    shutil.copytree(blackbox.REPOSITORY / "tools/command", folder / "tools/command")
    for kind, package in (("-base", "wanted"), ("-serve", "served"), ("-test", "pytested"), ("", "tested")):
        wheel = folder / f"tools/{package}-1-py3-none-any.whl"
        tiny_wheel(wheel)
        needs = "-r requirements-base.txt\n" if kind != "-base" else ""
        (folder / f"tools/requirements{kind}.txt").write_text(f"{needs}{package} @ {wheel.as_uri()}\n")
    (folder / "tools/packages").mkdir()
    for path in (blackbox.REPOSITORY / "tools/packages").iterdir():
        (folder / "tools/packages" / path.name).write_text("# Debian packages, none of which is wanted here.\n")
    for name in ("test_stages.py", "count_tests.py"):
        shutil.copy(blackbox.REPOSITORY / "tools" / name, folder / "tools" / name)
    (folder / "tests").mkdir()
    shutil.copy(blackbox.REPOSITORY / "tests/machine.py", folder / "tests/machine.py")
    (folder / "python/pyproject.toml").write_text(PROJECT)
    (folder / "python/backend.py").write_text(BACKEND)
    (folder / "python/hakmem/__init__.py").write_text("")
    (folder / "python/hakmem/__main__.py").write_text(MAIN)
    return folder / "hakmem"


def programs(folder, **texts):
    """Makes shell scripts with these names, and returns a PATH on which they come first. An underscore is a minus."""
    folder.mkdir()
    for name, text in texts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def environment(**variables):
    return blackbox.environment({"PIP_NO_INDEX": "1", "PATH": os.environ["PATH"], **variables})
