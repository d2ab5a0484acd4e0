"""Protects `hakmem run --profile` in a checkout: it builds the library that carries the profile, and runs on it."""

import re
from pathlib import Path

from conftest import BUILD, SCRIPT, launch

import blackbox

BUILD_SECONDS = 500


def run(*words):
    return blackbox.run([SCRIPT, "run", "--profile", "--", *words], timeout=BUILD_SECONDS)


def test_what_it_takes_is_built(counts):
    """In a checkout with or without build/cycles. The rows of the kinds add up to all calls."""
    result = run(counts, 30000, "status", 9)
    assert result.status == 9, result.report()
    rows = {found[1]: int(found[2]) for found in re.finditer(r"^hakmem: (malloc_\w+) +(\d+)( |$)", result.stderr, re.M)}
    assert 30000 < sum(rows[f"malloc_{kind}"] for kind in ("hit", "miss", "large", "huge")) < 30100, result.report()


def test_a_program_that_closes_standard_error_has_its_profile():
    """GNU's tools close it before the report."""
    result = run("sort", "/etc/passwd")
    assert result.status == 0 and result.stdout == "".join(sorted(Path("/etc/passwd").read_text().splitlines(True)))
    assert "malloc_hit" in result.stderr, result.report()


def test_another_build_says_that_it_has_no_profile():
    result = launch("--profile", "true", env={"HAKMEM_BUILD_DIR": str(BUILD)})
    assert result.status == 0 and "HAKMEM_TINY_PROFILE" in result.stderr, result.report()
