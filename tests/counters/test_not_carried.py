"""A build without debug counters says so, and has none of their names and words."""

import blackbox


def test_it_says_that_it_carries_none():
    result = blackbox.run(["true"], preload=blackbox.LIBRARY, env={"HAKMEM_DEBUG_COUNTERS": "1"})
    assert result.status == 0
    assert result.stderr == "hakmem: HAKMEM_DEBUG_COUNTERS: this build carries no debug counters\n"
