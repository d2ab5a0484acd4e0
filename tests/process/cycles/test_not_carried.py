"""Protects builds without the cycle profile: they say so, and contain nothing of it."""

import subprocess

import blackbox


def test_it_says_that_it_carries_none():
    result = blackbox.run(["true"], preload=blackbox.LIBRARY, env={"HAKMEM_TINY_PROFILE": "1"})
    assert result.status == 0 and "HAKMEM_TINY_PROFILE" in result.stderr and result.stderr.count("\n") == 1


def test_nothing_of_it_is_in_the_library():
    names = subprocess.run(["nm", blackbox.LIBRARY], check=True, capture_output=True, text=True).stdout
    assert "front_malloc_slow" in names
    assert "cycles_" not in names and "observe_cycles" not in names
