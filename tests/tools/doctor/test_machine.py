"""Protects the findings about a machine, with made-up machines: /proc and /sys in a folder."""

from pathlib import Path

import pytest

from hakmem.doctor import process_checks, system
from hakmem.doctor.elf import ElfFile
from hakmem.doctor.findings import Finding, as_json, exit_status
from hakmem.doctor.linkmap import LoadedObject
from hakmem.doctor.machine_checks import check_machine
from hakmem.doctor.serving_checks import check_word_size

GOOD = {
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64",
    "proc/sys/kernel/yama/ptrace_scope": "0",
    "proc/sys/vm/max_map_count": "65530",
    "proc/sys/vm/overcommit_memory": "0",
    "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\nSwapTotal: 1000000 kB\nSwapFree: 900000 kB\n"
                    "CommitLimit: 9000000 kB\nCommitted_AS: 1000000 kB",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}


def build(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


def test_good_machine(tmp_path):
    found = check_machine(build(tmp_path, GOOD))
    assert {finding.level for finding in found} == {"ok"} and exit_status(found) == 0
    assert [finding.subject for finding in found] == ["kernel", "huge pages", "mappings", "overcommit", "swap",
                                                      "looking inside"]


@pytest.mark.parametrize("name, text, level, subject, word", [
    ("proc/sys/kernel/osrelease", "5.10.0-28-amd64", "note", "kernel", "MADV_POPULATE_WRITE"),
    ("proc/sys/kernel/osrelease", "odd", "warning", "kernel", "'odd'"),
    ("proc/sys/kernel/yama/ptrace_scope", "1", "note", "looking inside", "ptrace_scope"),
    ("proc/sys/kernel/yama/ptrace_scope", "3", "note", "looking inside", "ptrace_scope"),
    ("proc/sys/vm/max_map_count", "4096", "warning", "mappings", "4096"),
    ("proc/sys/vm/overcommit_memory", "2", "note", "overcommit", "Committed_AS"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]", "note", "huge pages", ""),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "note", "huge pages", ""),
    ("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer madvise never", "warning", "huge pages", ""),
    ("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 100000 kB", "warning", "memory", ""),
    ("proc/meminfo", "SwapTotal: 1000 kB\nSwapFree: 100 kB", "warning", "swap", "90 %"),
])
def test_what_differs_is_found(tmp_path, name, text, level, subject, word):
    found = check_machine(build(tmp_path, {**GOOD, name: text}))
    hits = [finding for finding in found if finding.level != "ok"]
    assert len(hits) == 1, hits
    assert (hits[0].level, hits[0].subject) == (level, subject)
    assert word in hits[0].seen + hits[0].advice and hits[0].advice
    assert exit_status(found) == (level == "warning")


def test_overcommit_near_its_limit(tmp_path):
    files = {**GOOD, "proc/sys/vm/overcommit_memory": "2", "proc/meminfo": "CommitLimit: 1000 kB\nCommitted_AS: 950 kB"}
    assert [f.level for f in check_machine(build(tmp_path, files)) if f.subject == "overcommit"] == ["warning"]


def test_a_machine_that_tells_nothing(tmp_path):
    found = check_machine(tmp_path)
    assert {finding.subject for finding in found if finding.level == "note"} == {"huge pages", "mappings", "overcommit"}


# ---- cgroups ----


def v2(folder, **files):
    return build(folder, {"proc/7/cgroup": "0::/a/b",
                          **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}})


def test_no_cgroup_limit(tmp_path):
    root = v2(tmp_path, **{"a/b/memory.max": "max", "a/memory.max": "max"})
    assert [f.level for f in process_checks.check_cgroup(root, 7, {})] == ["ok"]


def test_the_least_limit_above_binds(tmp_path):
    root = v2(tmp_path, **{"a/b/memory.max": str(8 << 30), "a/memory.max": str(1 << 30),
                           "a/memory.current": str(1 << 29),
                           "a/b/memory.current": "1"})
    group = system.cgroup_memory(root, 7)
    assert (group.path, group.hard, group.used) == ("/sys/fs/cgroup/a", 1 << 30, 1 << 29)
    (found,) = process_checks.check_cgroup(root, 7, {})
    assert found.level == "note" and "1 GiB" in found.seen and "50 %" in found.seen
    assert "HAKMEM_MEMORY_LIMIT=auto" in found.advice
    (found,) = process_checks.check_cgroup(root, 7, {"HAKMEM_MEMORY_LIMIT": "auto"})
    assert found.level == "ok"


def test_near_the_cgroup_limit(tmp_path):
    root = v2(tmp_path, **{"a/b/memory.max": "1000000", "a/b/memory.current": "950000", "a/b/memory.high": "900000",
                           "a/b/memory.events": "low 0\nhigh 4\noom 2\noom_kill 2\noom_group_kill 0"})
    found = process_checks.check_cgroup(root, 7, {"HAKMEM_MEMORY_LIMIT": "auto"})
    assert [f.level for f in found] == ["warning"] * 3
    assert "95 %" in found[0].seen and "2 times" in found[2].seen


def test_version_1(tmp_path):
    root = build(tmp_path, {"proc/7/cgroup": "9:cpu:/x\n4:memory:/c\n0::/",
                            "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "2097152",
                            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                            "sys/fs/cgroup/memory/c/memory.usage_in_bytes": "1048576"})
    group = system.cgroup_memory(root, 7)
    assert (group.hard, group.used) == (2097152, 1048576)


# ---- The limits of a process ----


def test_mappings_near_their_limit(tmp_path):
    root = build(tmp_path, GOOD)
    levels = [process_checks.check_mappings(root, count)[0].level for count in (100, 60000, 65000)]
    assert levels == ["ok", "warning", "problem"]


@pytest.mark.parametrize("limits, used, levels", [
    ({"as": None, "data": None}, {}, ["ok"]),
    ({"as": 1 << 30}, {"VmSize": 1 << 29}, ["note"]),
    ({"as": 1 << 30}, {"VmSize": (1 << 30) - 1}, ["warning"]),
    ({"data": 1 << 30}, {"VmData": (1 << 30) - 1}, ["warning"]),
    ({"as": 1 << 30, "data": 1 << 30}, {}, ["note", "note"]),
    ({"memlock": 1 << 20}, {"VmLck": 1 << 20}, ["warning"]),
    ({"memlock": None}, {"VmLck": 4096}, ["note"]),
])
def test_limits(limits, used, levels):
    assert [f.level for f in process_checks.check_limits(limits, used.get)] == levels


@pytest.mark.parametrize("swapped, level", [(0, "ok"), (1000, "note"), (300000, "warning")])
def test_swapped_out(swapped, level):
    assert process_checks.check_swapped({"VmSwap": swapped, "VmRSS": 1000000}.get)[0].level == level


def test_purging():
    """A delay of 0, a long one, and no purge thread are notes."""
    for options, word in (({"HAKMEM_PURGE_DELAY": "0"}, ""), ({"HAKMEM_PURGE_DELAY": "600000"}, "600 s"),
                          ({"HAKMEM_PURGE_THREAD": "never"}, "purge thread")):
        (found,) = process_checks.check_purging(options)
        assert found.level == "note" and word in found.seen


def test_32_bits():
    program = LoadedObject("/bin/old", False, 0x8048000, [], ElfFile(32))
    assert check_word_size(program)[0].level == "problem" and not check_word_size(None)


def test_a_limits_file():
    text = Path("/proc/self/limits").read_text()
    found = system.parse_limits(text)
    assert set(found) == {"as", "data", "memlock"}
    assert system.parse_limits("Max address space         4096        unlimited         bytes") == {"as": 4096}


def test_of_a_variable_that_is_there_twice_the_first_counts():
    assert system.parse_environment(b"A=1\0B=2=3\0A=4\0odd\0") == {"A": "1", "B": "2=3"}


def test_json_counts():
    found = [Finding("ok", "a", "b"), Finding("problem", "c", "d", "e")]
    made = as_json(found, pid=3)
    assert made["status"] == 1 and made["pid"] == 3
    assert made["counts"] == {"ok": 1, "note": 0, "warning": 0, "problem": 1}
    assert exit_status(found[:1]) == 0
