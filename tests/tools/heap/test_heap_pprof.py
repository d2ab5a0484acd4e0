"""Protects our figures: the real pprof shows the same for the same files, and for what `hakmem serve` answers.

These are all tests with Go's pprof, which Go compiles at the first use."""

import gzip
import json
import os
import re
import sys

import blackbox
from making import known, observed, run

sys.path[:0] = [str(blackbox.REPOSITORY / folder) for folder in ("tests/tools/live", "tests/tools/serve")]

import profiled  # noqa: E402
from serving import serving  # noqa: E402

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
TIMEOUT = 300
KEPT = 20000 * 3072


def pprof(folder, *arguments):
    """Runs `go tool pprof -top`, which keeps what it fetches in the folder."""
    return blackbox.run(["go", "tool", "pprof", "-top", "-nodecount=10000", "-nodefraction=0", *arguments],
                        timeout=TIMEOUT, cwd=folder, env={
        "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": str(folder), "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false", **({"GOCACHE": cache} if (cache := os.environ.get("GOCACHE")) else {})})


def table(folder, kind, *arguments):
    """({function: (flat, cum)}, total) from pprof's table."""
    done = pprof(folder, *(["-unit=B"] if kind.endswith("_space") else []), *arguments)
    assert done.status == 0 and f"Type: {kind}" in done.stdout, done.report()
    functions = {}
    for line in done.stdout.partition("cum%\n")[2].splitlines():
        flat, _, _, cum, _, name = line.split(None, 5)
        functions[name.removesuffix(" (inline)")] = (figure(flat), figure(cum))
    return functions, figure(re.search(r"of (-?[\d.]+)B? total", done.stdout)[1])


def figure(text):
    value = float(text.removesuffix("B"))
    assert value == int(value)
    return int(value)


def ours(path, kind, *arguments):
    data = json.loads(run(path, "--json", *arguments).stdout)
    return {site["name"]: (site["flat"][kind], site["cum"][kind]) for site in data["sites"]
            if site["flat"][kind] or site["cum"][kind]}, data["totals"][kind]


def test_every_figure_of_known_stacks(tmp_path):
    path, later = known().write(tmp_path / "known.pb.gz"), known()
    for kind in TYPES:
        assert table(tmp_path, kind, f"-sample_index={kind}", path) == ours(path, kind)
    later.profile.sample[0].value[:] = [20, 8192, 14, 5120]
    after = later.write(tmp_path / "after")
    assert table(tmp_path, "inuse_space", "-sample_index=inuse_space", f"-base={path}", after) == ours(
        after, "inuse_space", "--diff", path)


def test_totals_before_and_names_after_symbolizing(program, tmp_path):
    before, after, kind = observed(program.path, program.build_id).write(
        tmp_path / "before"), tmp_path / "after", "inuse_space"
    done = run(before, "--symbolized", after)
    assert done.exit_code == 0, done.output
    # As on a machine without the program.
    kept = program.path.rename(tmp_path / "elsewhere")
    try:
        functions, total = table(tmp_path, kind, after)
        assert table(tmp_path, kind, before)[1] == total
        assert {"pick_inlined", "plain_c", "main"} < functions.keys() and (functions, total) == ours(after, kind)
    finally:
        kept.rename(program.path)


def test_what_serve_answers(compiled, library, tmp_path):
    """A process's profile of every block, by its address, with names from the files here, and with the server's."""
    program = compiled(profiled.SOURCE, *profiled.FLAGS)
    with profiled.profiled(program, library, mean=1) as running, serving(running.pid) as server:
        running.tell("keep", 3000, 20000)
        heap = f"{server.pprof}debug/pprof/heap"
        for options in ([], ["-symbolize=remote"]):
            functions, total = table(tmp_path, "inuse_space", *options, heap)
            assert functions["keep_hay"][0] == KEPT <= total and functions["main"][0] == 0
            assert not [name for name in functions if "malloc" in name or "hak_" in name]
        named, text = tmp_path / "with-names", tmp_path / "text"
        named.write_bytes(server.get("debug/pprof/heap?symbols=1")[2])
        assert gzip.decompress(named.read_bytes())
        assert table(tmp_path, "inuse_space", "-symbolize=none", named)[0]["keep_hay"][0] == KEPT
        running.tell("drop", 5000)
        functions, _ = table(tmp_path, "alloc_space", f"{server.pprof}debug/pprof/allocs")
        assert functions["keep_hay"][0] == KEPT
        text.write_bytes(server.get("debug/pprof/heap?debug=1&gc=1")[2])
        for kind, kept in (("inuse_space", KEPT * 3 // 4), ("alloc_space", KEPT)):
            assert table(tmp_path, kind, f"-sample_index={kind}", text)[0]["keep_hay"][0] == kept
    with profiled.profiled(program, library, mean=None) as running, serving(running.pid) as server:
        done = pprof(tmp_path, f"{server.pprof}debug/pprof/heap")
        assert done.status != 0 and "hakmem heap --start" in done.stderr, "pprof shows the reason"
