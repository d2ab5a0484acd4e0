"""Protects functions of JavaScript in the stacks of samples.

V8's code has no unwind tables: a walk passes it by frame pointers."""

import json
import os

import blackbox
from making import run

# V8 runs functions that are called seldom by its interpreter, whose frames have a function's name by the second option
# alone.
OPTIONS = ("--perf-basic-prof", "--interpreted-frames-native-stack")
BYTES = 400 * (128 << 10)  # of spans, which are whole units
# Each of the 400 blocks is a sample with a chance of 0.865, so that the estimate has a standard deviation of 2 %. Seven
# and a half of them are exceeded once in 10^13 runs.
NEAR = 0.15
PROGRAM = """
const kept = [];
function keep() { kept.push(Buffer.alloc(100000)); }
function grow() { for (let i = 0; i < 400; i++) keep(); }
grow();
"""


def test_functions_and_what_called_them(library, tmp_path):
    (tmp_path / "grow.js").write_text(PROGRAM)
    done = blackbox.run(["node", *OPTIONS, tmp_path / "grow.js"], preload=library, cwd=tmp_path,
                        env={"HAKMEM_HEAP_PROFILE": f"{tmp_path}/%p.pb.gz", "HAKMEM_HEAP_PROFILE_RATE": "65536"})
    assert done.status == 0, done.report()
    (profile,) = tmp_path.glob("*.pb.gz")
    names = f"/tmp/perf-{profile.name.split('.')[0]}.map"
    try:
        stacks = json.loads(run(profile, "--json").stdout)["stacks"]
    finally:
        os.unlink(names)
    found = 0
    for stack in stacks:
        frames = [frame["name"] for frame in stack["frames"]]
        if "keep" in frames:
            found += stack["values"]["alloc_space"]
            assert frames[frames.index("keep") + 1] == "grow", frames
            # The native frames that the program's start has left are behind its functions.
            assert any("node::Start" in name for name in frames[frames.index("grow"):]), frames
    assert 1 - NEAR < found / BYTES < 1 + NEAR, found
