"""Protects the version, which include/hakmem/hakmem.h defines: every other place has the same."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r'^#define HAK_VERSION_STRING "(.*)"$', (ROOT / "include/hakmem/hakmem.h").read_text(),
                    re.MULTILINE)[1]

# Files that tell the version to a tool that cannot read the header, and where it stands. They must exist.
DECLARED = {
    "include/hakmem/hakmem.h": r"""(?x) _MAJOR\ (\d+)\n .* _MINOR\ (\d+)\n .* _PATCH\ (\d+)\n""",
    "src/base/version.h": r"""(?x) _MAJOR\ (\d+)\n .* _MINOR\ (\d+)\n .* _PATCH\ (\d+)\n""",
    "python/pyproject.toml": r'^version = "(.+)"$',
    "rust/hakmem/Cargo.toml": r'^version = "(.+)"$|^hakmem-sys = .*version = "=([^"]+)"',
    "rust/hakmem-sys/Cargo.toml": r'^version = "(.+)"$',
    "rust/Cargo.lock": r'^name = "hakmem(?:-sys)?"\nversion = "(.+)"$',
}
# Files of these names may take the version from the header. If they have a number, it must be this one.
MAY_DECLARE = {
    "conanfile.py": r"""^\s*version\s*=\s*["'](\d[^"']*)""",
    "vcpkg.json": r'"version(?:-\w+)?"\s*:\s*"(\d[^"]*)"',
    "meson.build": r"""(?s)project\([^)]*?\bversion\s*:\s*'(\d[^']*)'""",
    "MODULE.bazel": r"""(?s)\bmodule\([^)]*?\bversion\s*=\s*"(\d[^"]*)""",
}


def told(path: str, pattern: str) -> list[str]:
    """All versions in the file. A match's groups are its parts."""
    found = re.finditer(pattern, (ROOT / path).read_text(), re.MULTILINE)
    return [".".join(part for part in match.groups() if part) for match in found]


@pytest.mark.parametrize("path", DECLARED)
def test_each_file_tells_the_same(path):
    versions = told(path, DECLARED[path])
    assert versions, f"{path} tells no version"
    assert set(versions) == {VERSION}, path


def test_so_does_each_recipe():
    files = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files"], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    recipes = [path for path in files if Path(path).name in MAY_DECLARE and not path.startswith(("tests/", "bench/"))]
    wrong = {path: versions for path in recipes
             if set(versions := told(path, MAY_DECLARE[Path(path).name])) - {VERSION}}
    assert not wrong


def test_the_changelogs_newest_release_is_this_one():
    released = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$", (ROOT / "CHANGELOG.md").read_text(),
                          re.MULTILINE)
    assert released[0] == VERSION


def test_a_new_version_reaches_every_file(tmp_path, monkeypatch):
    for path in [*DECLARED, "CHANGELOG.md"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    done = subprocess.run([sys.executable, ROOT / "tools/set_version.py", "--root", tmp_path, "7.8.9"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for path, pattern in DECLARED.items():
        assert set(told(path, pattern)) == {"7.8.9"}, path
    assert '"0.' not in (tmp_path / "include/hakmem/hakmem.h").read_text()
    assert re.search(r"^## Unreleased\n\n## 7\.8\.9 - \d{4}-\d\d-\d\d$", (tmp_path / "CHANGELOG.md").read_text(),
                     re.MULTILINE)


@pytest.mark.parametrize("version", ["1.2", "01.2.3", "1.2.3-rc1", ""])
def test_what_is_no_version_is_refused(version):
    done = subprocess.run([sys.executable, ROOT / "tools/set_version.py", version], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and done.stderr
