"""Protects the heap profile's figures for programs with known sites: true within 5 standard deviations."""

import bisect
import errno
import functools
import math
import re
import signal
import subprocess
from pathlib import Path

import pytest
import wire

import blackbox

HERE = Path(__file__).resolve().parent
SIGMAS = 5


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
    weight = -1 / math.expm1(-size / rate)
    sigma = math.sqrt(blocks * (weight - 1))
    print(f"{name}: {blocks} blocks of {size}, estimated {estimate}, {(estimate - blocks) / (sigma or 1):+.2f} sigma")
    assert abs(estimate - blocks) <= SIGMAS * sigma + 1 + 1e-4 * blocks, name


def check_in_use(sums, truth, rate):
    for site, (blocks, size) in truth.items():
        check_estimate(site, sums(site, "inuse_objects"), blocks, size, rate)
        space = sums(site, "inuse_space")
        assert abs(space - sums(site, "inuse_objects") * size) <= size + 1e-4 * space, site


def profile_run(sites, folder, mode, rate=16384, status=0, **env):
    """Runs a mode under the profiler. Returns its result and the profile."""
    path = folder / "profile.gz"
    variables = {"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": str(rate),
                 "HAKMEM_HEAP_PROFILE_OVERHEAD": "0", **env}
    result = blackbox.run([sites, mode], env=variables)
    assert result.status == status, result.report()
    return result, (wire.read(path) if path.exists() else None)


@pytest.mark.parametrize("unwind", ["eh", "fp"])
@pytest.mark.parametrize("mode, rate", [("sizes", 16384), ("sizes", 524288), ("sizes", 4096), ("churn", 16384),
                                        ("churn", 65536), ("families", 16384), ("threads", 16384), ("threads", 1)])
def test_in_use(sites, tmp_path, mode, rate, unwind):
    result, profile = profile_run(sites, tmp_path, mode, rate, HAKMEM_HEAP_PROFILE_UNWIND=unwind)
    assert result.stderr == ""
    truth = truths(result.stdout)
    if mode == "families":
        truth["mode_families"] = truth.pop("site_batch")
    if mode == "families" and unwind == "fp":
        for site in ("site_realloc", "site_heap", "site_heap_huge"):
            del truth[site]  # docs/profile.md: the profile skips the callers of these
    check_in_use(Sums(profile, sites), truth, rate)


@pytest.mark.parametrize("seed", range(4))
def test_churn_beside_keeping(sites, tmp_path, seed):
    """One site does 100 pairs of malloc and free for each block that another keeps, in one class. Each seed draws
    anew."""
    result, profile = profile_run(sites, tmp_path, "churn", 32768)
    check_in_use(Sums(profile, sites), truths(result.stdout), 32768)


@pytest.mark.parametrize("rate", [1, 512, 16384, 524288])
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
    assert any(re.fullmatch(r"peak of what is in use: \d+ ms after the start", text) for text in profile.comments)


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
    result = blackbox.run([sites, "program"], env={"PROFILE_TO": str(path), "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"})
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
    assert "the process handles or ignores that signal already" in result.stderr


@pytest.mark.parametrize("name, value, words", [
    ("HAKMEM_HEAP_PROFILE_SIGNAL", "KILL", "is no signal that a process can handle"),
    ("HAKMEM_HEAP_PROFILE_SIGNAL", "NOSUCH", "is no signal that a process can handle"),
    ("HAKMEM_HEAP_PROFILE_UNWIND", "dwarf", "is not auto, eh or fp"),
    ("HAKMEM_HEAP_PROFILE_RATE", "0", "is not a size from 1 to"),
])
def test_bad_options_are_named(sites, tmp_path, name, value, words):
    result, _ = profile_run(sites, tmp_path, "all_freed", **{name: value})
    assert f"{name}={value}" in result.stderr and words in result.stderr


def test_file_that_cannot_be_written_is_named(sites):
    result = blackbox.run([sites, "all_freed"], env={"HAKMEM_HEAP_PROFILE": "/nonexistent/x.gz"})
    assert result.status == 0 and "/nonexistent/x.gz could not be written: No such file or directory\n" in result.stderr


def test_interval_writes_files(sites, tmp_path):
    variables = {"HAKMEM_HEAP_PROFILE": f"{tmp_path}/%n.gz", "HAKMEM_HEAP_PROFILE_INTERVAL": "20M",
                 "HAKMEM_HEAP_PROFILE_RATE": "16384", "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"}
    result = blackbox.run([sites, "sizes"], env=variables)
    assert result.status == 0, result.report()
    files = sorted(tmp_path.iterdir(), key=lambda path: int(path.stem))
    assert 8 <= len(files) <= 12, files  # 196 MiB, and the file at exit
    spaces = [wire.read(path).total("alloc_space") for path in files]
    assert spaces == sorted(spaces)


def test_leak_report(sites):
    result = blackbox.run([sites, "churn"], env={"HAKMEM_LEAK_REPORT": "1", "HAKMEM_HEAP_PROFILE_RATE": "4096",
                                                 "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"})
    assert result.status == 0, result.report()
    lines = result.stderr.splitlines()
    assert lines[0].startswith("hakmem: in use at exit, by samples 4096 bytes apart:")
    found = re.match(r"hakmem: (\d+) bytes in (\d+) blocks, allocated at:", lines[1])
    check_estimate("report", int(found.group(2)), 50000, 224, 4096)
    module, offset = re.match(r"hakmem:     (\S+)\+0x([0-9a-f]+)$", lines[2]).groups()
    starts, names = functions_of(sites)
    assert module == str(sites) and names[bisect.bisect_right(starts, int(offset, 16)) - 1] == "site_keep"


@pytest.mark.parametrize("rate", [1, 4])
def test_double_free_of_a_sample(sites, tmp_path, rate):
    """At these rates every block of 100 bytes is a sample."""
    result, _ = profile_run(sites, tmp_path, "double_free", rate, status=-signal.SIGABRT)
    assert re.search(r"hakmem: free\(0x[0-9a-f]+\): freed already", result.stderr), result.report()
    assert "not ended" not in result.stdout


def test_a_leak_report_says_what_it_can_have_missed(sites):
    """It misses nothing when every block is a sample."""
    def said(rate):
        result = blackbox.run([sites, "churn"], env={
            "HAKMEM_LEAK_REPORT": "1", "HAKMEM_HEAP_PROFILE_RATE": rate, "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"
        })
        assert result.status == 0, result.report()
        return result.stderr.splitlines()[-1]
    assert re.fullmatch(r"hakmem: each figure is an estimate: with 95 % confidence the sum is right to \d+ bytes, and "
                        r"a site that is not listed "
                        r"has less than 12288\. `hakmem leaks -- PROGRAM` counts every block", said("4096"))
    assert said("1T") == (
        "hakmem: no sample is in use: with 95 % confidence less than 3298534883328 bytes are in use. "
        "`hakmem leaks -- "
        "PROGRAM` counts every block; HAKMEM_HEAP_PROFILE_RATE=1 makes each a sample")
    assert "confidence" not in said("1")
