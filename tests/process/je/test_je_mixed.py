"""Protects programs that are linked to jemalloc, such as Debian's Redis and BIND: all blocks are HAKMEM's there."""

import subprocess

import pytest

import blackbox
import machine
from conftest import FOLDER

# {name: library, variables}
WAYS = {
    "alone": (None, {}),
    "ordinary": ("libhakmem.so", {}),
    "profiled": ("libhakmem.so", {"HAKMEM_HEAP_PROFILE": "profile.gz", "HAKMEM_HEAP_PROFILE_RATE": "1000"}),
    "secure": ("libhakmem-secure.so", {}),
    "gperftools": ("libhakmem-tc.so", {}),
    "jemalloc": ("libhakmem-je.so", {}),
}


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(FOLDER / "mixed.c", "-fno-builtin", "-l:libjemalloc.so.2")


@machine.needs("library:libjemalloc.so.2")
@pytest.mark.parametrize("way", WAYS)
def test_blocks_of_any_function_meet_any_other(way, program, tmp_path):
    name, variables = WAYS[way]
    preload = blackbox.LIBRARY_FOLDER / name if name else None
    needed = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    assert "[libjemalloc.so.2]" in needed
    result = blackbox.run([program], env=variables, preload=preload, cwd=tmp_path)
    assert (result.status, result.stdout) == (0, "done\n"), result.report()
    assert result.stderr == "", result.report()
