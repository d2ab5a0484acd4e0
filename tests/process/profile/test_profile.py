"""Protects the heap profile's figures for programs with known sites, within the bounds of chance.py."""

import bisect
import errno
import functools
import math
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import wire
from chance import bound, weight

import blackbox
from messages import FREED, aborted, numbers

HERE = Path(__file__).resolve().parent


@functools.cache
def functions_of(program):
    """The program's functions, as ascending lists of addresses (in the file) and names."""
    listing = subprocess.run(["nm", "-n", "--defined-only", program], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    rows = [(int(row[0], 16), row[2]) for row in rows if row[1] in "tT"]
    return [address for address, _ in rows], [name for _, name in rows]


class Sums:
    """A profile's values by site. A site is the innermost site_* or mode_* function of a stack."""

    def __init__(self, profile, program):
        starts, names = functions_of(program)
        base = min(m.start - m.offset for m in profile.mappings.values() if m.file == str(program))
        own = [m for m in profile.mappings.values() if m.file == str(program)]
        self.values = {}
        for sample in profile.samples:
            site = "?"
            for address in sample.addresses:
                if any(m.start <= address < m.limit for m in own):
                    name = names[bisect.bisect_right(starts, address - base) - 1]
                    if name.startswith(("site_", "mode_")):
                        site = name
                        break
            for kind, value in sample.values.items():
                self.values[site, kind] = self.values.get((site, kind), 0) + value

    def __call__(self, site, kind):
        return self.values.get((site, kind), 0)


def truths(stdout):
    """{site: (blocks, block size)} as the program printed them."""
    rows = [line.split() for line in stdout.splitlines()]
    return {row[0]: (int(row[1]), int(row[2])) for row in rows if len(row) >= 3}


def check_estimate(name, estimate, blocks, size, rate):
    one = weight(size, rate)
    most = bound(math.sqrt(blocks * (one - 1)), one)
    print(f"{name}: {blocks} blocks of {size}, estimated {estimate}, bound {most:.0f}")
    assert abs(estimate - blocks) <= most + 1 + 1e-4 * blocks, name


def check_in_use(sums, truth, rate):
    for site, (blocks, size) in truth.items():
        check_estimate(site, sums(site, "inuse_objects"), blocks, size, rate)
        space = sums(site, "inuse_space")
        assert abs(space - sums(site, "inuse_objects") * size) <= size + 1e-4 * space, site


def profile_run(sites, folder, mode, rate=16384, status=0, **env):
    """Runs a mode under the profiler. Returns its result and the profile."""
    path = folder / "profile.gz"
    variables = {"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": str(rate), **env}
    result = blackbox.run([sites, mode], env=variables)
    assert result.status == status, result.report()
    return result, (wire.read(path) if path.exists() else None)


@pytest.mark.parametrize("mode, rate, unwind", [("sizes", 4096, "eh"), ("sizes", 524288, "fp"), ("churn", 16384, "eh"),
                                                ("families", 1024, "eh"), ("families", 1024, "fp"),
                                                ("threads", 16384, "eh"), ("threads", 1, "fp")])
def test_in_use(sites, tmp_path, mode, rate, unwind):
    """In mode churn, one site makes 100 pairs of malloc and free for each block that another keeps, in one class."""
    result, profile = profile_run(sites, tmp_path, mode, rate, HAKMEM_HEAP_PROFILE_UNWIND=unwind)
    assert result.stderr == ""
    truth = truths(result.stdout)
    if mode == "families":
        truth["mode_families"] = truth.pop("site_batch")
    if mode == "families" and unwind == "fp":
        for site in ("site_realloc", "site_heap", "site_heap_huge"):
            del truth[site]  # docs/profile.md: the profile skips the callers of these
    check_in_use(Sums(profile, sites), truth, rate)


@pytest.mark.parametrize("rate", [1, 524288])
def test_nothing_is_in_use_when_all_is_freed(sites, tmp_path, rate):
    _, profile = profile_run(sites, tmp_path, "all_freed", rate)
    sums = Sums(profile, sites)
    assert sums("site_keep", "alloc_objects") > 0
    for site in ("site_keep", "mode_all_freed"):
        assert sums(site, "inuse_objects") == sums(site, "inuse_space") == 0
        assert abs(sums(site, "freed_objects") - sums(site, "alloc_objects")) <= 40 + 1e-4 * sums(site, "alloc_objects")


def test_every_block_is_a_sample_at_a_mean_of_one_byte(sites, tmp_path):
    result, profile = profile_run(sites, tmp_path, "sizes", 1)
    sums = Sums(profile, sites)
    for site, (blocks, size) in truths(result.stdout).items():
        assert sums(site, "inuse_objects") == pytest.approx(blocks, abs=1 + 16 * (size == 16))
        assert sums(site, "alloc_objects") == sums(site, "inuse_objects")


def test_peak(sites, tmp_path):
    """The bytes in use at the peak: the churn's first round, before any block was kept."""
    result, profile = profile_run(sites, tmp_path, "peak")
    sums, truth = Sums(profile, sites), truths(result.stdout)
    check_estimate("peak", sums("site_churn", "peak_objects"), *truth["site_churn"], 16384)
    assert sums("site_churn",
                "peak_space") == pytest.approx(sums("site_churn", "peak_objects") * truth["site_churn"][1], rel=1e-3)
    assert sums("site_churn", "inuse_objects") == sums("site_keep", "peak_objects") == sums(
        "site_other", "peak_objects") == 0
    check_in_use(sums, {site: truth[site] for site in ("site_keep", "site_other")}, 16384)
    assert any(text.startswith("peak") and numbers(text) for text in profile.comments)


def test_huge_blocks_that_grow(sites, tmp_path):
    result, profile = profile_run(sites, tmp_path, "huge", 1024)
    sums = Sums(profile, sites)
    assert sums("site_keep", "inuse_objects") == 0
    assert sums("mode_huge", "inuse_objects") == 1
    assert sums("mode_huge", "inuse_space") == truths(result.stdout)["huge"][1]
    assert sums("mode_huge", "freed_objects") >= 10


def test_exit_from_a_thread(sites, tmp_path):
    result, profile = profile_run(sites, tmp_path, "exit_from_thread")
    check_in_use(Sums(profile, sites), truths(result.stdout), 16384)


def test_fork(sites, tmp_path):
    """The child adds its number to a file name without %p, and knows its parent's blocks."""
    result, profile = profile_run(sites, tmp_path, "fork")
    truth = truths(result.stdout)
    child = int(re.search(r"^child (\d+)$", result.stdout, re.M).group(1))
    check_in_use(Sums(profile, sites), {"site_keep": truth["site_keep"], "site_other": (0, 240)}, 16384)
    check_in_use(Sums(wire.read(tmp_path / f"profile.gz.{child}"), sites), truth, 16384)


def test_names_of_files(sites, tmp_path):
    result = blackbox.run([sites, "fork"], env={"HAKMEM_HEAP_PROFILE": f"{tmp_path}/a-%p-%n-%%.gz"})
    assert result.status == 0, result.report()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2 and all(re.fullmatch(r"a-\d+-1-%\.gz", name) for name in names), names


def test_program_turns_it_on_and_off(sites, tmp_path):
    path = tmp_path / "own.gz"
    result = blackbox.run([sites, "program"], env={"PROFILE_TO": str(path)})
    assert result.status == 0, result.report()
    check_in_use(Sums(wire.read(path), sites), truths(result.stdout), 16384)
    assert f"missing {errno.ENOENT}" in result.stdout and f"closed {errno.EBADF}" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["own.gz"]


def test_site_that_the_program_names(sites, tmp_path):
    result, profile = profile_run(sites, tmp_path, "alloc_at")
    place = int(result.stdout.split()[3], 16)
    mine = [sample for sample in profile.samples if place in sample.addresses]
    assert mine and all(sample.addresses[0] == place for sample in mine)
    check_estimate("place", sum(sample.values["inuse_objects"] for sample in mine), 60000, 80, 16384)


def test_signal_writes_the_file(sites, tmp_path):
    result, profile = profile_run(sites, tmp_path, "signal", HAKMEM_HEAP_PROFILE_SIGNAL="USR2")
    assert profile is not None, "the program ended by _exit: only the signal can have written it"
    check_in_use(Sums(profile, sites), {"site_keep": truths(result.stdout)["site_keep"]}, 16384)


def test_signal_that_is_ignored_stays_so(sites, tmp_path):
    command = ["bash", "-c", f"trap '' USR2; exec {sites} handled"]
    result = blackbox.run(command, env={"HAKMEM_HEAP_PROFILE": f"{tmp_path}/x.gz", "HAKMEM_HEAP_PROFILE_SIGNAL": "12"})
    assert result.status == 0 and "not ended" in result.stdout
    assert "HAKMEM_HEAP_PROFILE_SIGNAL" in result.stderr


def test_bad_options_are_named(sites, tmp_path):
    bad = {"HAKMEM_HEAP_PROFILE_SIGNAL": "KILL", "HAKMEM_HEAP_PROFILE_UNWIND": "dwarf", "HAKMEM_HEAP_PROFILE_RATE": "0"}
    result, _ = profile_run(sites, tmp_path, "huge", **bad)
    assert all(f"{name}={value}" in result.stderr for name, value in bad.items()), result.report()
    result, _ = profile_run(sites, tmp_path, "huge", HAKMEM_HEAP_PROFILE_SIGNAL="NOSUCH")
    assert "HAKMEM_HEAP_PROFILE_SIGNAL=NOSUCH" in result.stderr, result.report()


def test_file_that_cannot_be_written_is_named(sites):
    result = blackbox.run([sites, "huge"], env={"HAKMEM_HEAP_PROFILE": "/nonexistent/x.gz"})
    assert result.status == 0 and "/nonexistent/x.gz" in result.stderr and os.strerror(errno.ENOENT) in result.stderr


def test_interval_writes_files(sites, tmp_path):
    variables = {"HAKMEM_HEAP_PROFILE": f"{tmp_path}/%n.gz", "HAKMEM_HEAP_PROFILE_INTERVAL": "20M",
                 "HAKMEM_HEAP_PROFILE_RATE": "16384"}
    result = blackbox.run([sites, "sizes"], env=variables)
    assert result.status == 0, result.report()
    files = sorted(tmp_path.iterdir(), key=lambda path: int(path.stem))
    # 196 MiB, and the file at exit. An estimate of so much is wrong by 2 MiB with a chance below 1e-12.
    assert 10 <= len(files) <= 11, files
    spaces = [wire.read(path).total("alloc_space") for path in files]
    assert spaces == sorted(spaces)


def test_leak_report(sites):
    result = blackbox.run([sites, "churn"], env={"HAKMEM_LEAK_REPORT": "1", "HAKMEM_HEAP_PROFILE_RATE": "4096"})
    assert result.status == 0, result.report()
    lines = result.stderr.splitlines()
    assert numbers(lines[0])[0] == 4096
    space, blocks = numbers(lines[1])
    check_estimate("report", blocks, 50000, 224, 4096)
    assert abs(space - 224 * blocks) <= 224
    module, offset = re.match(r"hakmem:     (\S+)\+0x([0-9a-f]+)$", lines[2]).groups()
    starts, names = functions_of(sites)
    assert module == str(sites) and names[bisect.bisect_right(starts, int(offset, 16)) - 1] == "site_keep"


def test_double_free_of_a_sample(sites, tmp_path):
    """At this rate every block of 100 bytes is a sample."""
    result, _ = profile_run(sites, tmp_path, "double_free", 1, status=-signal.SIGABRT)
    said = aborted(result)
    assert (said.function, said.kind) == ("free", FREED) and "not ended" not in result.stdout, result.report()


def test_a_leak_report_says_what_it_can_have_missed(sites):
    """With 95 % confidence less than three times the rate in a site or in all. It misses nothing when every block is a
    sample."""
    def said(rate):
        result = blackbox.run([sites, "huge"], env={
            "HAKMEM_LEAK_REPORT": "1", "HAKMEM_HEAP_PROFILE_RATE": rate
        })
        assert result.status == 0, result.report()
        return numbers(result.stderr.splitlines()[-1])
    assert {95, 3 * 4096} <= set(said("4096")) and {95, 3 << 40} <= set(said("1T")) and 95 not in said("1")
