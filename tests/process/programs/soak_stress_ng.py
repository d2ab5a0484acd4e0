"""Protects stress-ng's stressors of memory: they complete and find their own contents."""

import re

import pytest

import blackbox

STRESSORS = {
    "malloc": ["--malloc", "2", "--malloc-ops", "150000", "--malloc-touch"],
    "malloc of threads": ["--malloc", "1", "--malloc-ops", "30000", "--malloc-pthreads", "3", "--malloc-bytes", "200K"],
    "malloc with zeroing": ["--malloc", "1", "--malloc-ops", "50000", "--malloc-zerofree", "--malloc-thresh", "64K"],
    "bigheap": ["--bigheap", "1", "--bigheap-ops", "2000", "--bigheap-growth", "64K"],
    "tree": ["--tree", "1", "--tree-ops", "2", "--tree-size", "20000"],
    "list": ["--list", "1", "--list-ops", "20", "--list-size", "1000"],
    "memthrash": ["--memthrash", "1", "--memthrash-ops", "20"],
}


@pytest.mark.parametrize("name", STRESSORS)
def test_stress_ng(name, tmp_path):
    """The output is about times. That the stressor completes and verifies needs no comparison run."""
    argv = ["stress-ng", "--verify", "--oomable", "--timeout", "20", "--temp-path", tmp_path, *STRESSORS[name]]
    result = blackbox.run_with_proof(argv, timeout=90)
    assert result.status == 0 and "successful run completed" in result.stdout + result.stderr, result.report()
    assert not re.search(r"fail|error", (result.stdout + result.stderr).replace("failed: 0", "")), result.report()
