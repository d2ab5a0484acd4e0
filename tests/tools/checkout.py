"""A small checkout of its own for tests of the script ./hakmem: its set-up may be made, raced and broken there."""

import os
import shutil
import zipfile

import blackbox

# What `pip install -e` asks of a build backend, without any package from elsewhere.
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
    """A package `wanted` for requirements.txt, so that nothing is fetched."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("wanted.py", "")
        for kind, text in (("METADATA", "Metadata-Version: 2.1\nName: wanted\nVersion: 1\n"),
                           ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"), ("RECORD", "")):
            file.writestr(f"wanted-1.dist-info/{kind}", text)


def make(folder):
    """The script with the least around it that its set-up needs; its tools print their arguments."""
    (folder / "tools").mkdir(parents=True)
    (folder / "python/hakmem").mkdir(parents=True)
    shutil.copy(blackbox.REPOSITORY / "hakmem", folder / "hakmem")
    wheel = folder / "tools/wanted-1-py3-none-any.whl"
    tiny_wheel(wheel)
    (folder / "tools/requirements.txt").write_text(f"wanted @ {wheel.as_uri()}\n")
    for name in ("bench", "test"):
        (folder / f"tools/packages-{name}.txt").write_text("# Debian packages, none of which is wanted here.\n")
    (folder / "python/pyproject.toml").write_text(PROJECT)
    (folder / "python/backend.py").write_text(BACKEND)
    (folder / "python/hakmem/__init__.py").write_text("")
    (folder / "python/hakmem/__main__.py").write_text(MAIN)
    return folder / "hakmem"


def environment(**variables):
    return blackbox.environment({"PIP_NO_INDEX": "1", "PATH": os.environ["PATH"], **variables})
