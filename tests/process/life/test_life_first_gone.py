"""Protects a process whose first thread has ended: HAKMEM reads its own memory, which /proc/self no longer shows."""

import sys
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(HERE / "first_gone.c", "-O1", "-g", "-pthread")


def test_a_heap_profile_has_names(program, tmp_path):
    profile = tmp_path / "profile"
    result = blackbox.run([program], preload=blackbox.LIBRARY,
                          env={"HAKMEM_HEAP_PROFILE": str(profile), "HAKMEM_HEAP_PROFILE_RATE": "4096"})
    assert (result.status, result.stderr) == (0, ""), result.report()
    shown = blackbox.run([sys.executable, "-m", "hakmem", "heap", str(profile)])
    assert "allocate_in_second_thread" in shown.stdout, shown.report()
