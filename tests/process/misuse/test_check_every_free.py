"""Protects CHECK_EVERY_FREE, a build with one changed constant: it catches at the call what others catch later."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox
from messages import FREED, aborted

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from amalgamate import LAYERS_LEFT_OUT, LEFT_OUT  # noqa: E402

FLAGS = [
    "-std=c17", "-O2", "-DNDEBUG", "-DHAKMEM_BUILD_RELEASE=1", "-D_DEFAULT_SOURCE", "-fPIC", "-fexceptions",
    "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin", "-Isrc", "-Iinclude"
]


@pytest.fixture(scope="module")
def checking_library(tmp_path_factory):
    """The library with CHECK_EVERY_FREE = 1, built from a copy of the source."""
    tree = tmp_path_factory.mktemp("checking")
    shutil.copytree(ROOT / "src", tree / "src")
    shutil.copytree(ROOT / "include", tree / "include")
    header = tree / "src/front/fast.h"
    text = header.read_text()
    assert text.count("CHECK_EVERY_FREE = 0") == 1
    header.write_text(text.replace("CHECK_EVERY_FREE = 0", "CHECK_EVERY_FREE = 1"))
    paths = sorted(path.relative_to(tree) for path in tree.glob("src/*/*.c"))
    sources = [str(path) for path in paths
               if path.parts[1] not in LAYERS_LEFT_OUT and "/".join(path.parts[1:]) not in LEFT_OUT]
    output, cache = tree / "libhakmem-checking.so", {**os.environ, **blackbox.compile_cache(tree)}
    for source in sources:  # ccache takes one at a time
        subprocess.run(["gcc", *FLAGS, "-c", source, "-o", f"{source}.o"], cwd=tree, check=True, env=cache,
                       timeout=blackbox.HANG)
    subprocess.run(["gcc", "-shared", "-o", output, *(f"{source}.o" for source in sources), "-lpthread", "-ldl"],
                   cwd=tree, check=True, timeout=blackbox.HANG)
    return output


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(HERE / "freed_in_slab.c", "-O0", "-Wno-use-after-free")


def said(result):
    """The program's lines but the pointer, after an abort at the second free of that pointer."""
    misuse = aborted(result)
    lines = result.stdout.splitlines()
    assert (misuse.function, misuse.pointer, misuse.kind, misuse.owner[0]) == ("free", lines[0], FREED, 64)
    return lines[1:]


def test_usual_build_catches_it_at_the_flush(program):
    assert said(blackbox.run([program], preload=blackbox.LIBRARY)) == ["free returned"]


def test_checking_build_catches_it_at_the_call(program, checking_library):
    assert said(blackbox.run([program], preload=checking_library)) == []


def test_checking_build_runs_programs(checking_library):
    checked = blackbox.run(["perl", "-e", "my %h; $h{$_} = $_ x 9 for 1 .. 200000; print scalar(keys %h)"],
                           preload=checking_library)
    assert checked.status == 0 and checked.stdout == "200000" and checked.stderr == "", checked.report()
