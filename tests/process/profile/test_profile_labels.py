"""Protects labels: samples carry exactly the labels that their thread has in force."""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wire

import blackbox
import machine

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools/heap"))

from making import run  # noqa: E402  (stands on the path)

INCLUDE = blackbox.REPOSITORY / "include"


@pytest.fixture(scope="session")
def program(compiled):
    """Not linked with HAKMEM: it has weak references to HAKMEM's names."""
    return compiled(HERE / "labels.c", "-DHAK_PROFILE_WEAK=1", f"-I{INCLUDE}")


def every_block(path, **more):
    return {"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": "1", **more}


def blocks_of(profile, key="tenant"):
    """{the label's value: blocks of the program's size in use}."""
    found = collections.Counter()
    for sample in profile.samples:
        blocks = sample.values["inuse_objects"]
        if blocks and sample.values["inuse_space"] == 1024 * blocks:  # the class of 1000 bytes
            found[sample.labels.get(key)] += blocks
    return dict(found)


@pytest.mark.parametrize("mode, expected", [
    ("plain", {"a": 100, "b": 100, None: 150}),
    ("threads", {"a": 50, "thread": 200, None: 200}),
    ("interrupted", {"first": 50, "last": 50}),
])
def test_samples_carry_what_is_in_force(program, library, tmp_path, mode, expected):
    result = blackbox.run([program, mode], preload=library, env=every_block(tmp_path / "p.gz"))
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
    profile = wire.read(tmp_path / "p.gz")
    assert {key: count for key, count in blocks_of(profile).items() if key != "a" or "a" in expected} == expected
    units = {sample.units["part"] for sample in profile.samples if sample.labels.get("part") == 4096}
    assert units == {"bytes"}


def test_a_child_of_a_fork_keeps_them(program, library, tmp_path):
    """Its threads start without labels. The parent's samples keep theirs."""
    result = blackbox.run([program, "fork"], preload=library, env=every_block(tmp_path / "%p.gz"))
    assert result.status == 0, result.report()
    found = [blocks_of(wire.read(path)) for path in tmp_path.iterdir()]
    assert sorted(found, key=len) == [{}, {"a": 50, "thread": 50, None: 50}]


def test_they_are_bounded(program, library, tmp_path):
    result = blackbox.run([program, "many"], preload=library, env=every_block(tmp_path / "p.gz"))
    assert result.status == 0, result.report()
    # One set means lost labels. The call that fills the table reports no loss.
    assert result.stdout == f"{6000 - (4096 - 1) - 1} without room\ndone\n"
    profile = wire.read(tmp_path / "p.gz")
    parts = {sample.labels["part"] for sample in profile.samples if "part" in sample.labels}
    assert parts == set(range(4095))
    assert blocks_of(profile, "hakmem.labels") == {"lost": 50}


def test_they_are_in_force_before_the_profile_is(program, library, tmp_path):
    result = blackbox.run([program, "late", tmp_path / "p.gz"], preload=library)
    assert (result.status, result.stderr) == (0, ""), result.report()
    found = blocks_of(wire.read(tmp_path / "p.gz"))
    assert found["late"] == 50 and set(found) <= {"a", "late"}


@pytest.mark.parametrize("mode", ["plain", "threads", "interrupted"])
def test_a_program_runs_without_hakmem(program, mode):
    result = blackbox.run([program, mode])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_a_program_that_is_not_position_independent(compiled, library, tmp_path):
    """As the header says, it finds HAKMEM when it is linked with it."""
    flags = ("-DHAK_PROFILE_WEAK=1", f"-I{INCLUDE}", "-fno-pie", "-no-pie")
    assert blackbox.run([compiled(HERE / "labels.c", *flags), "plain"]).stdout == "done\n"
    linked = compiled(HERE / "labels.c", *flags, library, f"-Wl,-rpath,{library.parent}")
    result = blackbox.run([linked, "plain"], env=every_block(tmp_path / "p.gz"))
    assert result.status == 0, result.report()
    assert blocks_of(wire.read(tmp_path / "p.gz")) == {"a": 100, "b": 100, None: 150}


CXX = """
#include <hakmem/profile.hpp>
#include <memory>
#include <vector>
enum class part { reader = 7 };
static auto &kept = *new std::vector<std::unique_ptr<char[]>>;
static void keep(int count)
{
    for (int i = 0; i < count; i++)
        kept.push_back(std::make_unique<char[]>(1000));
}
int main()
{
    kept.reserve(1000);
    hakmem::profile_scope outer("tenant", std::string("outer"));
    keep(10);
    try {
        hakmem::profile_scope inner("tenant", "inner");
        inner.label("part", part::reader);
        inner.label("bytes", 4096L, "bytes");
        keep(20);
        throw 1;
    } catch (int) {
        keep(30);
    }
    return outer.label("no\\nkey", 1) == 0;
}
"""


def test_scopes_of_cxx(library, tmp_path):
    source = tmp_path / "scopes.cpp"
    source.write_text(CXX)
    program = blackbox.compile_program(source, tmp_path / "scopes", "-std=c++17", "-Wall", "-Wextra",
                                       "-Wpedantic", "-Werror", f"-I{INCLUDE}", library,
                                       f"-Wl,-rpath,{library.parent}")
    result = blackbox.run([program], env=every_block(tmp_path / "p.gz"))
    assert (result.status, result.stderr) == (0, ""), result.report()
    profile = wire.read(tmp_path / "p.gz")
    found = blocks_of(profile)
    assert found["inner"] == 20 and found["outer"] == 40
    assert blocks_of(profile, "part")[7] == blocks_of(profile, "bytes")[4096] == 20


def test_pprof_has_them_as_tags(program, library, tmp_path):
    path = tmp_path / "p.gz"
    assert blackbox.run([program, "plain"], preload=library, env=every_block(path)).status == 0
    tags = subprocess.run(["go", "tool", "pprof", "-tags", "-sample_index=inuse_objects", path], check=True,
                          capture_output=True, text=True).stdout
    # Older versions of Go print numbers with a decimal place.
    assert re.search(r"^ *tenant: Total \d+", tags, re.M) and re.search(r"^ *100(\.0)? \(.*%\): b$", tags, re.M), tags
    assert re.search(r"^ *part: Total ", tags, re.M) and re.search(r"%\): 4kB$", tags, re.M), tags
    only = subprocess.run(["go", "tool", "pprof", "-top", "-sample_index=inuse_objects", "-tagfocus=tenant=b", path],
                          check=True, capture_output=True, text=True).stdout
    assert re.search(r"Showing nodes accounting for 100,", only), only


@machine.needs("process_vm_readv")
def test_seen_from_outside_and_in_the_report_of_leaks(program, library, tmp_path):
    """hakmem heap PID reports the labels as the file does, and HAKMEM_LEAK_REPORT names them."""
    path = tmp_path / "p.gz"
    env = blackbox.environment(every_block(path, LABELS_WAIT="1", HAKMEM_LEAK_REPORT="1"), preload=library)
    with subprocess.Popen([program, "plain"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "done\n"
        done = run(str(process.pid), "--by-label", "tenant", "--json")
        assert done.exit_code == 0, done.output
        outside = json.loads(done.stdout)
        _, told = process.communicate("\n", timeout=blackbox.HANG)
    inside = json.loads(run(path, "--by-label", "tenant", "--json").stdout)
    for data in (inside, outside):
        assert data["by_label"]["b"]["inuse_objects"] == 100
        assert {"part": "4096 bytes", "tenant": "b"} in [stack.get("labels") for stack in data["stacks"]]
    assert outside["by_label"]["b"] == inside["by_label"]["b"]
    assert "    label tenant=b\n" in re.sub(r"(?m)^hakmem: ", "", told) and "label part=4096 bytes\n" in told, told


def test_samples_of_a_scope_carry_its_name(compiled, library, tmp_path):
    """Also of a scope that has ended, while its blocks live on."""
    program = compiled(HERE / "scopes.cpp", f"-I{INCLUDE}", library, f"-Wl,-rpath,{library.parent}")
    result = blackbox.run([program], env=every_block(tmp_path / "p.gz"))
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
    assert blocks_of(wire.read(tmp_path / "p.gz"), "scope") == {"alice": 30, "bob": 20, None: 10}
    assert blackbox.run([program]).stdout == "done\n"
