"""Protects our figures: the real pprof shows the same for the same files."""

import json
import os
import re

import blackbox
import pytest
from making import known, observed, run

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
# Go compiles its pprof at the first use.
TIMEOUT = 300


def pprof(path, kind, folder, *arguments):
    """({function: (flat, cum)}, total) from pprof's table."""
    done = blackbox.run(["go", "tool", "pprof", "-top", f"-sample_index={kind}", "-nodecount=10000", "-nodefraction=0",
                         *(["-unit=B"] if kind.endswith("_space") else []), *arguments, path],
                        timeout=TIMEOUT, env={"PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": str(folder),
                                              "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false",
                                              **({"GOCACHE": cache} if (cache := os.environ.get("GOCACHE")) else {})})
    assert done.status == 0, done.report()
    total = re.search(r"of (-?[\d.]+)B? total", done.stdout)
    functions = {}
    for line in done.stdout.partition("cum%\n")[2].splitlines():
        flat, _, _, cum, _, name = line.split(None, 5)
        functions[name.removesuffix(" (inline)")] = (figure(flat), figure(cum))
    return functions, figure(total[1])


def figure(text):
    value = float(text.removesuffix("B"))
    assert value == int(value)
    return int(value)


def ours(path, kind, *arguments):
    data = json.loads(run(path, "--json", *arguments).stdout)
    return ({site["name"]: (site["flat"][kind], site["cum"][kind]) for site in data["sites"]}, data["totals"][kind])


@pytest.mark.parametrize("kind", TYPES)
def test_every_figure_of_known_stacks(tmp_path, kind):
    path = known().write(tmp_path / "known.pb.gz")
    functions, total = pprof(path, kind, tmp_path)
    expected, expected_total = ours(path, kind)
    assert total == expected_total
    assert functions == {name: values for name, values in expected.items() if values != (0, 0)}


def test_a_difference(tmp_path):
    before = known().write(tmp_path / "before")
    later = known()
    later.profile.sample[0].value[:] = [20, 8192, 14, 5120]
    after = later.write(tmp_path / "after")
    functions, total = pprof(after, "inuse_space", tmp_path, f"-base={before}")
    expected, expected_total = ours(after, "inuse_space", "--diff", before)
    assert total == expected_total == 4096
    assert functions == {name: values for name, values in expected.items() if values != (0, 0)}


def test_totals_before_and_names_after_symbolizing(program, tmp_path):
    before, after = observed(program.path, program.build_id).write(tmp_path / "before"), tmp_path / "after"
    done = run(before, "--symbolized", after)
    assert done.exit_code == 0, done.output
    # As on a machine without the program.
    kept = program.path.rename(tmp_path / "elsewhere")
    try:
        for kind in TYPES:
            expected, total = ours(after, kind)
            assert pprof(before, kind, tmp_path)[1] == total
            functions, after_total = pprof(after, kind, tmp_path)
            assert after_total == total
            assert {"pick_inlined", "plain_c", "main"} < functions.keys()
            assert functions == expected
    finally:
        kept.rename(program.path)
