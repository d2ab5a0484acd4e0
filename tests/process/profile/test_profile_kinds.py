"""Protects the function that the real pprof names for each way to allocate: the program's own, none of malloc's."""

import os
import re
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).parent
TIMEOUT = 300  # Go compiles its pprof at the first use


def tops(profile, folder):
    """The functions that pprof has at the top of stacks, with their bytes in use."""
    result = blackbox.run(["go", "tool", "pprof", "-top", "-sample_index=inuse_space", "-unit=B", "-nodecount=10000",
                           "-nodefraction=0", profile], timeout=TIMEOUT,
                          env={"PPROF_TMPDIR": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false",
                               **({"GOCACHE": cache} if (cache := os.environ.get("GOCACHE")) else {})})
    assert result.status == 0, result.report()
    rows = [line.split(None, 5) for line in result.stdout.partition("cum%\n")[2].splitlines()]
    return {row[5].removesuffix(" (inline)"): float(row[0].removesuffix("B")) for row in rows if row[0] != "0"}


@pytest.mark.parametrize("how", ["shared", "linked in", "static"])
def test_the_programs_function_is_on_top(compiled, library, override_archive, tmp_path, how):
    source = HERE / "kinds.cpp"
    libraries = {"shared": [library, f"-Wl,-rpath,{library.parent}"],
                 "linked in": ["-Wl,--undefined=malloc", override_archive, "-pthread"],
                 "static": ["-static", "-Wl,--undefined=malloc", override_archive, "-pthread"]}
    program = compiled(source, *libraries[how], "-fno-optimize-sibling-calls")
    result = blackbox.run([program], env={"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"),
                                          "HAKMEM_HEAP_PROFILE_RATE": "1"})
    assert (result.status, result.stderr) == (0, ""), result.report()
    found = tops(tmp_path / "heap.gz", tmp_path)
    sites = set(re.findall(r"^SITE (site_\w+)\(\)", source.read_text(), re.M))
    assert len(sites) == 21 and found.keys() == sites
    # At this rate every block is a sample.
    assert found["site_malloc_huge"] >= 20 * 2000000 and found["site_malloc_medium"] >= 400 * 20000
    assert found["site_malloc_after_batch"] == found["site_malloc"] >= 400 * 2000


@pytest.mark.parametrize("unwind", ["auto", "fp"])
def test_a_static_c_program_has_no_tables_and_loads_none(compiled, override_archive, tmp_path, unwind):
    """Frame pointers remain. No library is loaded, because it would bring a second C library."""
    program = compiled(HERE / "kinds_static.c", "-static", "-Wl,--undefined=malloc", override_archive, "-pthread",
                       "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
    result = blackbox.run([program], env={"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"),
                                          "HAKMEM_HEAP_PROFILE_UNWIND": unwind,
                                          "HAKMEM_HEAP_PROFILE_RATE": "1"})
    assert (result.status, result.stdout, result.stderr) == (0, "", ""), result.report()
    assert tops(tmp_path / "heap.gz", tmp_path).keys() == {"site_malloc", "site_calloc", "site_aligned_alloc"}
