"""Who a profile names for each way to allocate, as the real pprof shows it: the program's own function, and no frame of
malloc's above it."""

import os
import re
from pathlib import Path

import blackbox

HERE = Path(__file__).parent
TIMEOUT = 300  # Go compiles its pprof when it is first asked for


def tops(profile, folder):
    """The functions that pprof has at the top of stacks, with bytes in use."""
    result = blackbox.run(["go", "tool", "pprof", "-top", "-sample_index=inuse_space", "-unit=B", "-nodecount=10000",
                           "-nodefraction=0", profile], timeout=TIMEOUT,
                          env={"PPROF_TMPDIR": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false",
                               **({"GOCACHE": cache} if (cache := os.environ.get("GOCACHE")) else {})})
    assert result.status == 0, result.report()
    rows = [line.split(None, 5) for line in result.stdout.partition("cum%\n")[2].splitlines()]
    return {row[5].removesuffix(" (inline)"): float(row[0].removesuffix("B")) for row in rows if row[0] != "0"}


def test_the_programs_function_is_on_top(compiled, library, tmp_path):
    source = HERE / "kinds.cpp"
    program = compiled(source, library, f"-Wl,-rpath,{library.parent}", "-fno-optimize-sibling-calls")
    result = blackbox.run([program], env={"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"),
                                          "HAKMEM_HEAP_PROFILE_RATE": "1000", "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"})
    assert (result.status, result.stderr) == (0, ""), result.report()
    found = tops(tmp_path / "heap.gz", tmp_path)
    sites = set(re.findall(r"^SITE (site_\w+)\(\)", source.read_text(), re.M))
    assert len(sites) == 20 and found.keys() == sites
    assert found["site_malloc_huge"] > 20 * 2000000 * 0.99
