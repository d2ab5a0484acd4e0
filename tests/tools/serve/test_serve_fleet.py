"""Protects `hakmem serve` without a PID: it finds the processes that may be read, follows them, and sums them."""

import contextlib
import ctypes
import gzip
import os
import shutil
import subprocess
import sys
import tempfile

import blackbox
import busy as programs
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from serving import COMMAND, serving, until

from hakmem.heap.profile_pb2 import Profile
from hakmem.serve.fleet import GROUPS_MOST, Fleet
from hakmem.serve.places import place_of
from hakmem.serve.survey import Survey

CAPBSET_DROP, SYS_PTRACE = 24, 19  # linux/prctl.h, linux/capability.h
ID = "0123456789abcdef" * 4
POD = "12345678-9abc-def0-1234-56789abcdef0"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def families(server, accept=""):
    """The metrics, by the real parser."""
    status, headers, body = server.get("metrics", headers={"Accept": accept} if accept else {})
    assert status == 200
    read = text_string_to_metric_families
    if accept:
        assert headers.get_content_type() == "application/openmetrics-text"
        read = openmetrics.text_string_to_metric_families
    return list(read(body.decode()))


def value(server, name, **labels):
    """The sum of a metric's samples with these labels; None if there is none."""
    found = [sample.value for family in families(server) for sample in family.samples
             if sample.name == name and labels.items() <= sample.labels.items()]
    return sum(found) if found else None


@pytest.fixture
def named(program, tmp_path):
    """The program under a name that no other process has."""
    made = tmp_path / f"fleet{os.getpid()}"
    shutil.copy(program, made)
    return made


def test_processes_come_grow_and_go(named, library):
    name = {"command": named.name}
    with serving("--interval", "0.2") as server:
        assert value(server, "hakmem_processes", **name) is None
        with programs.busy(named, library) as first, programs.busy(named, None), contextlib.ExitStack() as stack:
            second = stack.enter_context(programs.busy(named, library))
            until(lambda: value(server, "hakmem_processes", **name) == 2, "two of three, as one is not on HAKMEM")
            held = value(server, "hakmem_live_bytes", **name)
            assert held >= 2 * programs.HELD * 100
            parts = value(server, "hakmem_resident_bytes", **name)
            assert parts == pytest.approx(value(server, "hakmem_process_resident_bytes", **name), rel=0.02)
            carved = value(server, "hakmem_slabs_carved_total", **name)
            listed = [one for one in server.json("api/processes")["processes"] if one["command"] == named.name]
            assert {one["pid"] for one in listed} == {first.pid, second.pid}
            # Each can be looked at as if it was served alone.
            shot = server.json(f"api/snapshot/{first.pid}")
            assert shot["pid"] == first.pid and shot["classes"]
            assert server.json(f"api/history/{first.pid}")["points"]
            assert server.get(f"map/{first.pid}")[0] == 200
            second.end()
            until(lambda: value(server, "hakmem_processes", **name) == 1, "the end of one")
            assert value(server, "hakmem_live_bytes", **name) < held
            assert value(server, "hakmem_slabs_carved_total", **name) >= carved, "a counter never falls"
            first.grow(40000)
            until(lambda: value(server, "hakmem_slabs_carved_total", **name) > carved, "what one does counts")
        until(lambda: value(server, "hakmem_processes", **name) is None, "the end of all")
        assert server.get(f"api/snapshot/{first.pid}")[0] in (200, 404, 410, 503)


# A process that has mapped the first part of the library, and maps all of it when it reads a line.
LOADING = """
import ctypes, mmap, sys
with open(sys.argv[1], "rb") as file:
    part = mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
print(flush=True)
input()
ctypes.CDLL(sys.argv[1]).hak_malloc(100)
print(flush=True)
input()
"""


def test_a_process_that_was_loading_is_searched_again(library):
    survey = Survey()
    survey.do_begin(1e9, "/", [])
    with subprocess.Popen([sys.executable, "-c", LOADING, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=blackbox.environment()) as process:
        process.stdout.readline()
        assert "totals" not in survey.do_look(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        until(lambda: "totals" in survey.do_look(process.pid), "HAKMEM")
        process.communicate(b"\n")


def test_openmetrics_and_bounded_labels(busy):
    with serving("--interval", "0.2") as server:
        found = families(server, OPENMETRICS)
        labels = {name for family in found for sample in family.samples for name in sample.labels}
        assert labels == {"unit", "container", "pod", "command", "part", "kind"}
        names = {family.name for family in found}
        assert {"hakmem_processes", "hakmem_live_bytes", "hakmem_page_faults", "hakmem_serve_cpu_seconds"} <= names
    with serving(busy.pid) as server:
        assert any(family.name == "hakmem_up" for family in families(server, OPENMETRICS))


def test_a_name_leads_to_a_profile(named, library):
    """The largest process of the name, as scrapers cannot know PIDs."""
    with programs.busy(named, library, variables={"HAKMEM_HEAP_PROFILE": "/dev/null"}) as process, \
            serving("--interval", "0.2") as server:
        status, headers, body = server.get(f"debug/pprof/heap?name={named.name}&seconds=1")
        assert status == 200 and str(process.pid) in headers["Content-Disposition"]
        assert Profile.FromString(gzip.decompress(body)).sample_type
        assert server.get("debug/pprof/heap?name=nobody")[0] == 404


def test_only_a_cgroup(busy):
    with open(f"/proc/{busy.pid}/cgroup", encoding="utf-8") as file:
        path = place_of(file.read()).path
    with serving("--interval", "0.2", "--cgroup", path) as server:
        assert busy.pid in {one["pid"] for one in server.json("api/processes")["processes"]}
    with serving("--interval", "0.2", "--cgroup", f"{path.rstrip('/')}/nothing.here") as server:
        assert server.json("api/processes")["processes"] == []


@pytest.mark.parametrize("text, unit, container, pod", [
    ("0::/system.slice/redis-server.service", "redis-server.service", "", ""),
    ("0::/user.slice/user-1000.slice/session-77.scope", "session.scope", "", ""),
    ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r0f8a.scope", "run.scope", "", ""),
    (f"0::/system.slice/docker-{ID}.scope", "", ID[:12], ""),
    (f"0::/docker/{ID}", "", ID[:12], ""),
    (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/"
     f"cri-containerd-{ID}.scope", "", ID[:12], POD),
    (f"0::/kubepods/besteffort/pod{POD}/{ID}", "", ID[:12], POD),
    ("12:memory:/system.slice/a.service\n1:name=systemd:/system.slice/a.service\n0::/", "a.service", "", ""),
    ("0::/", "", "", ""), ("", "", "", ""), ("nonsense\n::", "", "", "")])
def test_where_a_process_runs(text, unit, container, pod):
    found = place_of(f"{text}\n")
    assert (found.unit, found.container, found.pod) == (unit, container, pod)


def test_labels_have_an_end():
    """A process can choose its name. Those beyond the limit share a group."""
    fleet = Fleet("/", 1, 1)
    groups = {fleet.group_of(("", "", "", f"name {number}")) for number in range(10 * GROUPS_MOST)}
    assert len(groups) == GROUPS_MOST + 1 and len(fleet.grown) == GROUPS_MOST + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_what_may_not_be_read(program, library):
    """A server without rights has its own user's processes, and counts the others."""
    def without_rights():
        assert ctypes.CDLL(None).prctl(CAPBSET_DROP, SYS_PTRACE, 0, 0, 0) == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copies = [shutil.copy(file, folder) for file in (program, library)]
        command = ["setpriv", "--bounding-set", "-sys_ptrace", *COMMAND]
        with programs.busy(*copies, user=65534, group=65534, extra_groups=[]) as other, \
                programs.busy(program, library, preexec_fn=without_rights) as own, \
                serving("--interval", "0.2", command=command) as server:
            listed = {one["pid"] for one in server.json("api/processes")["processes"]}
            assert own.pid in listed and other.pid not in listed
            assert value(server, "hakmem_serve_unseen_processes") > 0
