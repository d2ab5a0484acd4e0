"""Protects the profile's file: pprof's format to the letter, and real programs under the profiler."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wire
from test_profile import profile_run

import blackbox
import machine


def check_profile(profile, rate):
    """Checks what holds for every profile."""
    assert profile.period == rate
    assert profile.default_type == "inuse_space"
    assert any(comment.startswith("hakmem ") for comment in profile.comments)
    for address, mapping in profile.locations.values():
        assert mapping, f"location {address:#x} is in no mapping"
        assert profile.mappings[mapping].start <= address < profile.mappings[mapping].limit
    for sample in profile.samples:
        assert len(sample.addresses) <= 128
        assert sample.addresses or any("frame pointers" in comment for comment in profile.comments)
        values = sample.values
        assert values["alloc_objects"] >= values["inuse_objects"]
        assert ("lifetime_from" in sample.labels) == (values["freed_objects"] > 0)
        assert values["alloc_objects"] > 0 or "bytes" not in sample.labels


def build_id_of(path):
    notes = subprocess.run(["readelf", "-n", path], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found.group(1) if found else ""


def test_mappings_and_build_ids(sites, tmp_path):
    _, profile = profile_run(sites, tmp_path, "sizes")
    check_profile(profile, 16384)
    files = {mapping.file: mapping.build_id for mapping in profile.mappings.values()}
    assert str(sites) in files and any("libc.so" in file for file in files)
    for file, build_id in files.items():
        if file.startswith("/"):
            assert build_id == build_id_of(file), file


def test_the_first_mapping_is_the_programs(sites, tmp_path):
    """pprof calls a profile by the first mapping's file. A program that the loader is told to start lies behind it."""
    loader = re.search(r"interpreter: (.*)\]", subprocess.run(["readelf", "-l", sites], check=True, capture_output=True,
                                                              text=True).stdout)[1]
    for number, words in enumerate(([sites], [loader, sites])):
        path = tmp_path / f"{number}.gz"
        result = blackbox.run([*words, "sizes"], env={"HAKMEM_HEAP_PROFILE": str(path)})
        assert result.status == 0, result.report()
        assert next(iter(wire.read(path).mappings.values())).file == str(sites)


def test_own_frames_are_left_out(sites, tmp_path, library):
    _, profile = profile_run(sites, tmp_path, "families")
    own = [m for m in profile.mappings.values() if Path(m.file).resolve() == library.resolve()]
    assert own
    leaves = [sample.addresses[0] for sample in profile.samples]
    assert not [leaf for leaf in leaves if any(m.start <= leaf < m.limit for m in own)]


def test_lifetimes(sites, tmp_path):
    """Each freed sample is in one bucket, and lived at least as long as the bucket's start."""
    _, profile = profile_run(sites, tmp_path, "threads")
    freed = [sample for sample in profile.samples if "lifetime_from" in sample.labels]
    assert freed
    for sample in freed:
        begins = sample.labels["lifetime_from"]
        assert sample.values["lifetime"] >= begins * (sample.values["freed_objects"] - 0.5) - 0.5  # both are rounded
        if begins:
            assert sample.values["lifetime"] <= 2 * begins * sample.values["freed_objects"] * 1.001


def test_sizes(sites, tmp_path):
    """A sample of blocks has their size: that of the class, or a quarter of a power of two below a huge block's."""
    _, profile = profile_run(sites, tmp_path, "sizes")
    sizes = {}
    for sample in profile.samples:
        if sample.values["alloc_objects"]:
            assert sample.units["bytes"] == "bytes"
            sizes.setdefault(sample.labels["bytes"], []).append(sample.values)
    assert sizes.keys() >= {16, 112, 1024, 10240, 131072, 720896, 2621440}
    for size, rows in sizes.items():
        for values in rows:
            for kind in ("alloc", "inuse", "peak"):
                blocks, held = values[f"{kind}_objects"], values[f"{kind}_space"]
                if size > 1 << 20:
                    assert size * (blocks - 0.5) <= held <= 1.25 * size * (blocks + 0.5)
                else:
                    assert abs(held - size * blocks) <= 0.5 * size + 0.5  # both are rounded


def test_pprof_reads_it(sites, tmp_path):
    _, profile = profile_run(sites, tmp_path, "sizes")
    raw = subprocess.run(["go", "tool", "pprof", "-raw", tmp_path / "profile.gz"], check=True, capture_output=True,
                         text=True)
    assert "inuse_space/bytes[dflt]" in raw.stdout and "Period: 16384" in raw.stdout
    top = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=B", "-sample_index=inuse_space", sites, tmp_path / "profile.gz"],
        check=True, capture_output=True, text=True).stdout
    total = int(re.search(r"of (\d+)B total", top).group(1))
    assert total == profile.total("inuse_space")
    for name in ("site_100", "site_3000000"):
        assert re.search(rf"\b{name}$", top, re.M), top


PYTHON = """
import json, threading
data = [{"a": i, "b": str(i) * 5} for i in range(5000)]
def work():
    for _ in range(3):
        assert json.loads(json.dumps(data)) == data
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""


@machine.needs("process_vm_readv")
@pytest.mark.parametrize("rate, unwind", [(1, "eh"), (4096, "fp")])
def test_python(library, tmp_path, rate, unwind):
    env = {"HAKMEM_HEAP_PROFILE": f"{tmp_path}/%p.gz", "HAKMEM_HEAP_PROFILE_RATE": str(rate),
           "HAKMEM_HEAP_PROFILE_UNWIND": unwind}
    result = blackbox.run([sys.executable, "-c", PYTHON], preload=library, env=env)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", "")
    (path,) = tmp_path.iterdir()
    check_profile(wire.read(path), rate)


def test_compiler(library, tmp_path, rate=4096):
    """g++ and the programs that it starts print the same as without the profile."""
    source = tmp_path / "hello.cpp"
    source.write_text("#include <map>\n#include <string>\nint main() { return std::map<int, std::string>{{1, "
                      "\"a\"}}.size() - 1; }\n")
    outputs = []
    for preload, env in [(None, {}), (library, {"HAKMEM_HEAP_PROFILE": f"{tmp_path}/%p.gz",
                                                "HAKMEM_HEAP_PROFILE_RATE": str(rate)})]:
        output = tmp_path / f"hello-{len(outputs)}.s"
        result = blackbox.run(["g++", "-O1", "-S", source, "-o", output], preload=preload, env=env)
        assert result.status == 0 and result.stderr == "", result.report()
        outputs.append(output.read_text())
    assert outputs[0] == outputs[1]
    profiles = list(tmp_path.glob("*.gz"))
    assert profiles
    for path in profiles:
        check_profile(wire.read(path), rate)


def test_fast_path_knows_nothing_of_it(library):
    """malloc and free refer only to the window, the thread's cache and their slow paths."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True, capture_output=True,
                             text=True).stdout
    for name in ("malloc", "free"):
        body = re.search(rf"^[0-9a-f]+ <{name}>:\n(.*?)\n\n", listing, re.M | re.S).group(1)
        named = set(re.findall(r"<([\w.@]+)(?:[+-]0x[0-9a-f]+)?>", body)) - {name}
        assert not [symbol for symbol in named if "profile" in symbol or "sample" in symbol], named
        assert len(body.splitlines()) < 40


UNWRITABLE = """
import ctypes, errno, resource, signal, sys
library, folder = ctypes.CDLL(None), sys.argv[1]
library.hak_profile_start(ctypes.c_size_t(4096))
kept = [bytes(1000) for _ in range(100000)]
def write(name):
    return errno.errorcode.get(library.hak_profile_write(f"{folder}/{name}".encode()), "written")
print(write("taken"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
print(write("full"))
"""


def test_a_profile_that_cannot_be_written_leaves_nothing(library, tmp_path):
    """Neither when its name is a folder's nor when there is no room. The first error is reported."""
    (tmp_path / "taken").mkdir()
    result = blackbox.run(["/usr/bin/python3", "-c", UNWRITABLE, tmp_path], preload=library)
    assert (result.status, result.stdout.split()) == (0, ["EISDIR", "EFBIG"]), result.report()
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_device_or_a_pipe_is_written_to(library, tmp_path):
    """It is not replaced, as a file is: /dev/null would be a file from then on, if root writes a profile there."""
    out, pipe = tmp_path / "out", tmp_path / "pipe"
    out.symlink_to("/proc/self/fd/1")
    os.mkfifo(pipe)
    program = ["/usr/bin/python3", "-c", "kept = [bytes(1000) for _ in range(10000)]"]
    setting = {"HAKMEM_HEAP_PROFILE_RATE": "4096"}
    done = subprocess.run(program, env={**setting, "LD_PRELOAD": str(library), "HAKMEM_HEAP_PROFILE": str(out)},
                          capture_output=True, timeout=blackbox.HANG, check=True)
    (tmp_path / "copy.gz").write_bytes(done.stdout)
    check_profile(wire.read(tmp_path / "copy.gz"), 4096)
    assert out.is_symlink() and done.stderr == b""
    result = blackbox.run(program, preload=library, env={**setting, "HAKMEM_HEAP_PROFILE": str(pipe)})
    assert result.status == 0 and os.strerror(errno.ENXIO) in result.stderr, result.report()
    assert pipe.is_fifo() and len(list(tmp_path.iterdir())) == 3
