"""Protects the builds inside tests: ccache answers in another folder."""

import re
import subprocess

import pytest

import blackbox


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
