"""Protects the commands stats and explain, and the errors for each process that cannot be read."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import blackbox
import pytest
from conftest import HERE, command
from inprocess import as_nobody
from prometheus_client.parser import text_string_to_metric_families

from hakmem.live import LiveError, ProcessMemory, explain, find, moment, pages, snapshot
from hakmem.live import memory as live_memory
from hakmem.live.memory import NoProcess
from hakmem.processes import KERNEL_THREAD
from hakmem.units import bytes_column

MIB = 1 << 20
COMMANDS = ("stats", "explain", "map")
# Only small pages: a page is resident once it is written, and khugepaged changes none meanwhile.
SMALL_PAGES = {"HAKMEM_THP": "never"}


# ---- stats ----

def test_stats_as_json_and_prometheus_tell_the_same(known, hakmem):
    program = known()
    program.ask("take", 3000, 1000)
    program.ask("thread", 700, 100)
    os.kill(program.pid, signal.SIGSTOP)
    told = json.loads(hakmem("stats", program.pid, "--json"))
    families = {family.name: family for family in text_string_to_metric_families(
        hakmem("stats", program.pid, "--prometheus"))}
    table = hakmem("stats", program.pid)
    os.kill(program.pid, signal.SIGCONT)
    assert told["pid"] == program.pid and "superslabs" not in told
    for name in ("live", "mapped", "cached", "retained"):
        assert f"{told['totals'][name]:,}" in table, name
    assert re.search(r"^ *3,072 .* 1,000 ", table, re.MULTILINE) and str(program.pid) in table
    for name, value in told["totals"].items():
        family = families.get(f"hakmem_{name}_bytes") or families[f"hakmem_{name}"]
        assert family.type == "gauge"
        assert [(sample.value, sample.labels["pid"]) for sample in family.samples] == [(value, str(program.pid))]
    for name, value in told["counters"].items():
        assert families[f"hakmem_{name}"].type == "counter"
        assert [sample.value for sample in families[f"hakmem_{name}"].samples] == [value]
    live = {sample.labels["block_size"]: sample.value for sample in families["hakmem_class_live_blocks"].samples}
    assert live == {str(row["block_size"]): row["live_blocks"] for row in told["classes"]}
    assert live["3072"] == 1000 and live["768"] == 100
    refilled = {sample.labels["block_size"]: sample.value
                for sample in families["hakmem_class_refilled_blocks"].samples}
    assert refilled == {str(row["block_size"]): row["counters"]["refilled_blocks"] for row in told["classes"]}
    assert sum(refilled.values()) == told["counters"]["refilled_blocks"] >= 1100
    pools = {row["name"]: row for row in told["block_pools"]}
    for name in ("slabs", "slab_bytes", "live_bytes", "cached_blocks", "free_bytes"):
        assert {sample.labels["pool"]: sample.value for sample in families[f"hakmem_pool_{name}"].samples} == {
            pool: row[name] for pool, row in pools.items()}
    assert pools["medium"]["live_blocks"] == 1000 and pools["small"]["live_blocks"] >= 100
    for name, total in (("live_bytes", "live"), ("cached_bytes", "cached")):
        assert sum(row[name] for row in pools.values()) == told["totals"][total]
    units = {tuple(sample.labels[name] for name in ("tier", "state")): sample.value
             for sample in families["hakmem_superslab_units"].samples}
    assert sum(units.values()) == 31 * told["totals"]["superslabs"]
    assert units["hot", "dirty"] == next(row["dirty_units"] for row in told["pools"] if row["tier"] == "HOT")
    assert told["totals"]["mapped"] == sum(told["totals"][name] for name in (
        "live", "cached", "free_in_slab", "retained", "metadata"))


def test_options_are_told_as_they_were_set(known, hakmem, tmp_path):
    """A text option's value is the text, and not its address in the process. An address elsewhere looks like one."""
    file = f"{tmp_path}/{'long' * 50}/heap.gz"
    program = known(env={"HAKMEM_HEAP_PROFILE": file, "HAKMEM_HEAP_PROFILE_UNWIND": "fp", "HAKMEM_FC_CAP": "128"})
    told = json.loads(hakmem("stats", program.pid, "--json"))
    names = ("heap_profile", "heap_profile_unwind", "heap_profile_signal", "stats_file", "fc_cap")
    assert [told["options"][name] for name in names] == [file, "fp", None, None, 128]
    assert told["threads"] and all(re.fullmatch(r"0x[0-9a-f]+", row["address"]) for row in told["threads"])


def test_forms_that_do_not_go_together():
    for words in (("--json", "--prometheus"), ("--prometheus", "--json"), ("--superslabs", "--prometheus")):
        command("stats", os.getpid(), *words).says(2, *words)


def test_stats_with_superslabs(known, hakmem):
    program = known()
    program.ask("take", 3000, 1000)
    told = json.loads(hakmem("stats", program.pid, "--json", "--superslabs"))
    units = [unit for superslab in told["superslabs"] for unit in superslab["units"]]
    assert {len(superslab["units"]) for superslab in told["superslabs"]} == {31}
    assert sum(unit["used"] - unit["cached"] for unit in units if unit["first"] and unit["block_size"] == 3072) == 1000
    lines = re.findall(r"^ *(\d+) +(0x[0-9a-f]+) +(FULL|HOT|DRAINING|EMPTY) +(\d+) +(\d+) +(\d+) +(\d+) ",
                       hakmem("stats", program.pid, "--superslabs"), re.MULTILINE)
    assert [(int(number), int(address, 16), tier) for number, address, tier, *_ in lines] == [
        (superslab["number"], superslab["address"], superslab["tier"]) for superslab in told["superslabs"]]
    assert [sum(map(int, counts)) for *_, counts in ((line[:3], line[3:]) for line in lines)] == [31] * len(lines)


# ---- explain ----

def explained(hakmem, program):
    made = json.loads(hakmem("explain", program.pid, "--json"))
    assert made["estimated"] == ""
    assert made["sum"] == sum(made["heap"].values()) + sum(made["other"].values())
    assert made["difference"] == made["sum"] - made["rss"]
    assert abs(made["difference"]) <= made["rss"] / 100, made
    return made


def test_every_resident_byte(known, hakmem):
    """Blocks, freed memory among them, the program's own memory and stacks are told apart."""
    program = known(env={"HAKMEM_PURGE_DELAY": "3600000", **SMALL_PAGES})
    begun = explained(hakmem, program)
    program.ask("take", 3072, 10000)
    program.ask("take", 5 * MIB, 2)
    full = explained(hakmem, program)
    taken = 10000 * 3072 + 10 * MIB
    assert full["heap"]["live"] - begun["heap"]["live"] == taken
    program.ask("drop", 3072, 2)
    half = explained(hakmem, program)
    free = sum(half["heap"][name] - full["heap"][name] for name in ("fragmentation", "cached", "free_in_slab",
                                                                    "huge_pages"))
    assert full["heap"]["live"] - half["heap"]["live"] == free == 5000 * 3072
    assert half["heap"]["fragmentation"] - full["heap"]["fragmentation"] > 0.9 * free - MIB, "beside blocks that stay"
    program.ask("drop", 5 * MIB, 1)
    empty = explained(hakmem, program)
    assert empty["heap"]["retained"] - half["heap"]["retained"] == 10 * MIB
    program.ask("map", 3 * MIB)
    assert explained(hakmem, program)["other"]["other anonymous memory"] - empty["other"]["other anonymous "
                                                                                          "memory"] == 3 * MIB


def rollup(program):
    """The process's Rss by the kernel's own sum."""
    text = Path(f"/proc/{program.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss: +(\d+) kB$", text, re.MULTILINE)[1]) * 1024


# Spans go back to the system at once.
HARD = {"HAKMEM_HUGE_CACHE": "0", "HAKMEM_PURGE_DELAY": "0", **SMALL_PAGES}


def test_every_resident_byte_of_a_moving_process(stir, hakmem):
    """Several threads change small, large and huge blocks at full speed: what the command tells of its own reading is
    consistent. How far Rss moves meanwhile is the machine's affair."""
    program = stir(HARD)
    for _ in range(3):
        made = json.loads(hakmem("explain", program.pid, "--json"))
        assert made["estimated"] == "" and made["sum"] == sum(made["heap"].values()) + sum(made["other"].values())
        assert min(made["heap"].values()) >= 0 and min(made["other"].values()) >= 0, made
        bound = max(abs(made["sum"] - made[name]) for name in ("rss_before", "rss_after"))
        assert made["moving"] == (bound > made["rss"] / 100)
        assert abs(made["difference"]) <= bound


def all_stopped(pid):
    """Whether all threads stand still, which a thread in the kernel does not."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_every_resident_byte_of_a_stopped_process(stir, hakmem):
    """Stopped anywhere, the figures equal the kernel's own to the byte, before and after. The test looks again if the
    kernel itself moved pages of the stopped process meanwhile."""
    program = stir(HARD)
    for _ in range(3):
        time.sleep(0.1)
        os.kill(program.pid, signal.SIGSTOP)
        while not all_stopped(program.pid):
            time.sleep(0.01)
        before, after = 0, 1
        while before != after:
            before, made, after = rollup(program), json.loads(hakmem("explain", program.pid, "--json")), rollup(program)
        told = [before, *(made[name] for name in ("rss_before", "sum", "rss", "rss_after")), after]
        assert len(set(told)) == 1, told
        assert made["heap_drift"] == 0 and not made["moving"]
        os.kill(program.pid, signal.SIGCONT)


def test_a_moving_process_is_said_to_move(known, monkeypatch):
    """When no reading is still, both amounts that Rss had are told."""
    program, told = known(), iter(range(1, 10**6))
    monkeypatch.setattr(moment, "read_rss", lambda memory: next(told) * 100 * MIB)
    monkeypatch.setattr(moment, "SECONDS", 0.2)
    made = explain.explain_process(ProcessMemory(program.pid))
    assert made.moving and made.looks > 1 and made.rss_after - made.rss_before == 100 * MIB


def test_the_heap_profile_is_metadata(known, tmp_path):
    """The profile's tables, which have their own mappings, count as metadata only."""
    profile = {"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"), "HAKMEM_HEAP_PROFILE_RATE": "1",
               "HAKMEM_HEAP_PROFILE_UNWIND": "fp"}
    found = []
    for env in ({}, profile):
        program = known(env=env)
        program.ask("take", 3000, 10000)
        made = explain.explain_process(ProcessMemory(program.pid))
        assert abs(made.difference) <= made.rss / 100
        found.append(made)
    # At least 64 bytes for each of 10,000 samples.
    assert found[1].heap["metadata"] - found[0].heap["metadata"] > 640000
    assert found[1].other["other anonymous memory"] - found[0].other["other anonymous memory"] < 100000


def test_kinds_of_mappings(known, hakmem):
    program = known()
    before = explained(hakmem, program)
    program.ask("thread", 3000, 10)
    after = explained(hakmem, program)
    assert after["other"]["stacks"] > before["other"]["stacks"] > 0
    assert after["other"]["libraries"] > 0
    assert 0 < after["other"]["program"] < MIB
    assert after["heap"]["metadata"] > 0
    text = hakmem("explain", program.pid)
    assert bytes_column(after["rss"]) in text and bytes_column(after["heap"]["live"]) in text


@pytest.mark.parametrize("kernel", ["newer", "older"])
def test_after_fork_pages_are_counted(start, library, kernel, monkeypatch):
    """Pages that parent and child share look like the zero page, but count. Older kernels have no PAGEMAP_SCAN."""
    code = "import os, time; x = [bytes(1000) for _ in range(40000)]\nif os.fork() == 0: time.sleep(600)\n" \
           "print('ready', flush=True); time.sleep(600)"
    program = start(["/usr/bin/python3", "-c", code], library, {"PYTHONMALLOC": "malloc"})
    if kernel == "older":
        monkeypatch.setattr(pages, "PAGEMAP_SCAN", 0xC060667F)
    made = explain.explain_process(ProcessMemory(program.pid))
    assert made.estimated == "" and abs(made.difference) <= made.rss * (0.01 if kernel == "newer" else 0.1)
    assert made.heap["live"] > 40000 * 1000


def test_an_older_kernel(known, monkeypatch):
    """The zero page, which reading leaves behind, is not in Rss there either."""
    program = known()
    program.ask("take", 3000, 10000)
    for _ in range(2):
        snapshot(ProcessMemory(program.pid))
    monkeypatch.setattr(pages, "PAGEMAP_SCAN", 0xC060667F)
    made = explain.explain_process(ProcessMemory(program.pid))
    assert made.estimated == "" and abs(made.difference) <= made.rss / 100
    assert made.heap["live"] >= 10000 * 3072 - (1 << 20)


def test_explain_without_a_pagemap(known, monkeypatch):
    """Without a pagemap the parts are estimated, marked as estimates, and still sum up."""
    def refuse(pid):
        raise pages.PagemapError(f"/proc/{pid}/pagemap: No such file or directory")
    program = known()
    program.ask("take", 3000, 10000)
    monkeypatch.setattr(explain, "Pagemap", refuse)
    made = explain.explain_process(ProcessMemory(program.pid))
    assert "pagemap: No such file" in made.estimated
    assert abs(made.difference) <= made.rss / 100
    assert made.heap["live"] >= 10000 * 3072


# ---- What cannot be read ----

ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1"}


def test_what_is_no_process():
    """One line that names the PID, for each command. A zombie waits for its parent."""
    gone, zombie = subprocess.Popen(["true"]), subprocess.Popen(["true"])
    gone.wait()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    for name in COMMANDS:
        for pid in (gone.pid, zombie.pid):
            done = command(name, pid)
            done.says(1, pid)
            assert done.stderr.count("\n") == 1
        command(name, "x?").says(1, "'x?'")
        command(name, 0).says(2, "PID")
        command(name).says(2, "PID")
    zombie.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_another_users_process(known):
    program = known()
    assert command("stats", program.pid).status == 0
    done = as_nobody("stats", program.pid)
    done.says(1, f"process {program.pid} of uid 0 as uid 65534")
    # Yama forbids looks at processes of one's own only.
    assert "yama" not in done.stderr and done.stderr.count("\n") == 1


def test_a_thread_of_the_kernel():
    thread = Path("/proc/2/stat")
    if not thread.exists() or not int(thread.read_text().rpartition(")")[2].split()[6]) & KERNEL_THREAD:
        pytest.skip("process 2 is no thread of the kernel: this is a container with its own PIDs")
    for name in COMMANDS:
        command(name, 2).says(1, "process 2")


def test_the_proc_of_another_pid_namespace(known):
    """There a PID means one process in /proc, and another one, or none, to process_vm_readv."""
    if blackbox.run(["unshare", "--pid", "--fork", "true"]).status != 0:
        pytest.skip("unshare --pid is not permitted here")
    for words in (["stats", known().pid], ["ps"]):
        result = blackbox.run(["unshare", "--pid", "--fork", sys.executable, "-m", "hakmem", *words], env=ENVIRONMENT)
        assert (result.status, result.stdout) == (1, "") and result.stderr.count("\n") == 1, result.report()
        assert "/proc" in result.stderr and "PID namespace" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user, which needs root")
def test_ones_own_process(tmp_path, monkeypatch):
    """The error names Yama where Yama forbids the look."""
    monkeypatch.setattr(live_memory, "YAMA", tmp_path / "ptrace_scope")
    with subprocess.Popen(["sleep", "600"], user="nobody") as process:
        monkeypatch.setattr(os, "geteuid", lambda: os.stat(f"/proc/{process.pid}").st_uid)
        try:
            assert "yama" not in str(live_memory.permission_error(process.pid))
            (tmp_path / "ptrace_scope").write_text("1\n")
            assert "kernel.yama.ptrace_scope is 1" in str(live_memory.permission_error(process.pid))
        finally:
            process.kill()


def test_processes_that_cannot_be_read(start, compiled):
    """Another malloc, and a HAKMEM whose format this tool does not know: the error tells its version and format."""
    plain, other = start([compiled(HERE / "known.c")]), start([compiled(HERE / "other_format.c")])
    for name in COMMANDS:
        command(name, plain.pid).says(1, plain.pid)
        command(name, other.pid).says(1, "9.9.9", "99")


def test_a_process_that_ends_meanwhile(known):
    program = known()
    memory = ProcessMemory(program.pid)
    assert snapshot(memory).totals.mapped > 0
    program.end()
    with pytest.raises(NoProcess, match=str(program.pid)):
        snapshot(memory)


def test_damage_is_refused(start, compiled, library):
    """A heap list that leads nowhere or in circles ends in an error, and not in a loop."""
    program = start([compiled(HERE / "known.c")], library)
    memory = ProcessMemory(program.pid)
    descriptor = find(memory)

    class Damaged:
        """The program's memory, with each heap's `next` replaced by the given address."""
        pid, target = program.pid, 0

        def read_many(self, ranges):
            ranges = list(ranges)
            parts = memory.read_many(ranges)
            place = descriptor.fields["heap.next"]
            for number, (address, size) in enumerate(ranges):
                if size == descriptor.types["heap"]:
                    part = bytearray(parts[number])
                    part[place.offset:place.offset + 8] = (self.target or address).to_bytes(8, "little")
                    parts[number] = bytes(part)
            return parts

        def read(self, address, size):
            return self.read_many([(address, size)])[0]

    for target in (0, 0xdead0, 0x7fffdeadbeef):
        damaged = Damaged()
        damaged.target = target
        with pytest.raises(LiveError, match="0x"):
            snapshot(damaged, descriptor)


def test_output_that_cannot_be_written(known, tmp_path):
    command("map", known().pid, "-o", tmp_path / "none" / "map.html").says(1, "none/map.html", os.strerror(2))


def test_another_mallocs_process_and_the_command_to_type(start, compiled, tmp_path):
    """An installation has no ./hakmem."""
    program = start([compiled(HERE / "known.c")])
    shutil.copytree(blackbox.REPOSITORY / "python/hakmem", tmp_path / "hakmem",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for folder, name in ((tmp_path, "hakmem"), (blackbox.REPOSITORY / "python", "./hakmem")):
        result = blackbox.run([sys.executable, "-m", "hakmem", "stats", program.pid],
                              env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"})
        assert result.status == 1, result.report()
        assert re.findall(r"(\S*hakmem) (run|doctor)", result.stderr) == [(name, "run"), (name, "doctor")]
        assert f"doctor {program.pid} " in result.stderr


def test_heap_and_explain_have_one_total(known, hakmem, tmp_path):
    """The exact bytes in use are the same in stats, explain and heap; the samples' are the same in explain and heap."""
    program = known(env={"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz"), "HAKMEM_HEAP_PROFILE_RATE": "50000"})
    program.ask("take", 3000, 1000)
    os.kill(program.pid, signal.SIGSTOP)
    explained, told, heap = (json.loads(hakmem(name, program.pid, "--json")) for name in ("explain", "stats", "heap"))
    text = hakmem("explain", program.pid)
    os.kill(program.pid, signal.SIGCONT)
    (exact,) = {int(found[1]) for comment in heap["comments"]
                if (found := re.fullmatch(r"in use, [^:]*samples: (\d+) bytes", comment))}
    assert exact == explained["live"] == told["totals"]["live"] >= 3072 * 1000
    sampled = explained["sampled"]
    # heap rounds the figures of each site to whole blocks and bytes.
    assert sampled["bytes"] == pytest.approx(heap["totals"]["inuse_space"], rel=1e-3)
    assert 0 < sampled["error"] == pytest.approx(heap["totals_error"]["inuse_space"], rel=1e-3)
    assert bytes_column(exact) in text and bytes_column(sampled["error"]) in text


def test_explain_without_a_heap_profile(known, hakmem):
    program = known()
    program.ask("take", 3000, 1000)
    explained = json.loads(hakmem("explain", program.pid, "--json"))
    assert explained["sampled"] is None and explained["live"] >= 3072 * 1000
