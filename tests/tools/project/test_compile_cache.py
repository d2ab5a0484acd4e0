"""Protects the builds inside tests: ccache answers in another folder, and packages share objects of equal folders only.
"""

import re
import subprocess
import sys

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
sys.path.insert(0, str(ROOT / "tools/package"))

from plan import Plan  # noqa: E402


@pytest.fixture
def hits(tmp_path):
    """hits(folder, variables, *flags) compiles a file in the folder, and returns how many compilations the cache has
    answered."""
    def compile_there(folder, variables, *flags):
        folder.mkdir(exist_ok=True)
        (folder / "file.c").write_text("const char *name = __FILE__;\n")
        env = blackbox.environment({"CCACHE_DIR": str(tmp_path / "cache"), **variables})
        words = ["ccache", "gcc", "-MD", "-MF", "file.d", *flags, "-c", folder / "file.c", "-o", "file.o"]
        subprocess.run(words, cwd=folder, env=env, check=True)
        told = subprocess.run(["ccache", "--print-stats"], env=env, capture_output=True, text=True, check=True).stdout
        return sum(map(int, re.findall(r"^(?:direct|preprocessed)_cache_hit\t(\d+)", told, re.M)))

    return compile_there


def test_a_build_in_another_folder_is_answered(hits, tmp_path):
    variables = blackbox.compile_cache(tmp_path)
    variables.pop("PATH")
    assert [hits(tmp_path / name, variables) for name in ("one", "another")] == [0, 1]


def test_packages_share_objects_of_equal_folders(hits, tmp_path):
    """The map of folders' names is not among what ccache compares, and the object's bytes follow it."""
    def packing(work):
        return Plan(tmp_path, tmp_path / work, tmp_path / "dist", cached=True).cache()

    place, name = tmp_path / "place", f"-ffile-prefix-map={tmp_path}="
    assert hits(place, packing("one"), f"{name}first") == 0
    assert hits(place, packing("another"), f"{name}second") == 0
    assert b"second/place" in (place / "file.o").read_bytes()
    assert hits(place, packing("one"), f"{name}first") == 1
    assert b"first/place" in (place / "file.o").read_bytes()


def test_a_package_for_users_is_compiled_without(tmp_path):
    plan = Plan(tmp_path, tmp_path, tmp_path)
    assert (plan.cache(), plan.compiler_settings()) == ({}, {})
