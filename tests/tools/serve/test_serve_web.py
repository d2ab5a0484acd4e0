"""Protects hakmem serve's answers and refusals: the figures, the profile's switch, statuses, and what errors name."""

import errno
import hashlib
import importlib.resources
import json
import os
import re
import signal
import socket
import sys

import blackbox
import busy as programs
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import SECONDS, refused_command, serving, until
from waiting import Waiting

from hakmem.document import CHART_SCRIPTS, CHART_STYLE, SHARED
from hakmem.serve import page

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/heap"))

from steady import FLAGS, steady  # noqa: E402
from steady import SOURCE as steady_source  # noqa: E402

why_source = blackbox.REPOSITORY / "tests/tools/live/why.c"


def metrics(server):
    """{name: {labels: value}}, read by the real parser."""
    status, headers, body = server.get("metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of(found, pid, **labels):
    """The only value of a process with these labels."""
    wanted = {("pid", str(pid)), *labels.items()}
    values = [value for key, value in found.items() if wanted <= set(key)]
    assert len(values) == 1, (pid, labels, found)
    return values[0]


def test_a_snapshot_is_what_the_program_holds(server, busy):
    shot = server.json(f"api/snapshot/{busy.pid}")
    assert shot["pid"] == busy.pid and shot["process"]["state"] == "running"
    live = {row["block_size"]: row["live_blocks"] for row in shot["classes"]}
    assert programs.HELD <= live[programs.HELD_CLASS] <= programs.HELD + 200
    assert programs.MINE <= live[programs.MINE_CLASS] <= programs.MINE + 20
    assert sum(shot["resident"].values()) == shot["rss"]
    assert "superslabs" not in shot
    units = server.json(f"api/snapshot/{busy.pid}?superslabs=1")["superslabs"]
    assert len(units) >= 1 and len(units[0]["units"]) == 31


def test_the_history_goes_on(server, busy):
    until(lambda: len(server.json(f"api/history/{busy.pid}")["points"]) >= 3, "three looks")
    points = server.json(f"api/history/{busy.pid}")["points"]
    numbers = [point["number"] for point in points]
    assert numbers == list(range(1, len(numbers) + 1))
    assert points[0]["rates"] is None and points[2]["rates"]["refills"] is not None
    later = server.json(f"api/history/{busy.pid}?after={numbers[-1]}")["points"]
    assert all(point["number"] > numbers[-1] for point in later)
    # What the program holds besides changes by less than 5 MB: 3,000 blocks of 200 bytes are on their way.
    before = points[-1]["rss"]
    busy.grow(40000)
    until(lambda: server.json(f"api/history/{busy.pid}")["points"][-1]["rss"] > before + (35 << 20), "40 MB more")


def test_metrics_by_the_real_parser(server, busy, program, library):
    found = metrics(server)
    assert of(found["hakmem_up"], busy.pid) == 1
    rss = of(found["hakmem_process_resident_bytes"], busy.pid)
    parts = {part: of(found["hakmem_resident_bytes"], busy.pid, part=part)
             for part in ("live", "cached", "free_in_slab", "retained", "metadata", "other")}
    assert sum(parts.values()) == rss
    mapped = sum(of(found[f"hakmem_{name}_bytes"], busy.pid)
                 for name in ("live", "cached", "free_in_slab", "retained", "metadata"))
    assert of(found["hakmem_mapped_bytes"], busy.pid) == pytest.approx(mapped, rel=0.01)
    assert of(found["hakmem_class_live_blocks"], busy.pid, block_size=str(programs.HELD_CLASS)) >= programs.HELD
    assert of(found["hakmem_page_faults_total"], busy.pid, kind="soft") > 1000
    with open(f"/proc/{busy.pid}/comm", encoding="utf-8") as file:
        assert of(found["hakmem_up"], busy.pid, command=file.read().strip()) == 1


def test_several_processes_and_the_end_of_one(program, library):
    with programs.busy(program, library) as first, programs.busy(program, library) as second, \
            serving(first.pid, second.pid, first.pid, "--interval", "0.1") as server:
        processes = server.json("api/processes")["processes"]
        assert [(about["pid"], about["state"]) for about in processes] == [
            (first.pid, "running"), (second.pid, "running")]
        second.end()
        until(lambda: server.json("api/processes")["processes"][1]["state"] == "ended", "the end")
        about = server.json(f"api/snapshot/{second.pid}")["process"]
        assert str(second.pid) in about["problem"] and about["ended_at"] > 0
        assert server.get(f"map/{second.pid}")[0] == 200, "the last look stays"
        found = metrics(server)
        assert of(found["hakmem_up"], first.pid) == 1 and of(found["hakmem_up"], second.pid) == 0
        assert {dict(key)["pid"] for key in found["hakmem_mapped_bytes"]} == {str(first.pid)}
        first.end()
        until(lambda: server.json("api/processes")["processes"][0]["state"] == "ended", "the end of all")
        assert metrics(server)["hakmem_up"].keys() and server.get("")[0] == 200


def test_the_map_and_errors(server, busy):
    """Errors are JSON, and name the path, the PIDs that are served, the parameter or the method."""
    status, headers, body = server.get(f"map/{busy.pid}")
    assert status == 200 and headers.get_content_type() == "text/html" and str(busy.pid).encode() in body
    assert "/nowhere" in server.refused("nowhere", 404)
    for path in ("api/snapshot/1", "api/snapshot/x", "map/1", "api/history/-3"):
        assert str(busy.pid) in server.refused(path, 404)
    assert "after=x" in server.refused(f"api/history/{busy.pid}?after=x", 400)
    assert "POST" in server.refused("metrics", 405, method="POST")
    # A page elsewhere cannot have it asked.
    assert "evil.example" in server.refused("metrics", 403, headers={"Host": "evil.example"})
    assert server.get("metrics", headers={"Host": "localhost:1"})[0] == 200
    # A signal ends it.
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    assert server.process.stderr.read() == ""


def test_other_hosts_are_warned_of(busy):
    with serving(busy.pid, "--host", "0.0.0.0") as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        server.url = f"http://127.0.0.1:{port}/"
        assert server.get("metrics", headers={"Host": "some.name"})[0] == 200
        server.process.terminate()
        assert "0.0.0.0:" in server.process.communicate()[1]


def test_what_cannot_be_served(busy, program):
    assert "4194304" in refused_command(busy.pid, 4194304)
    assert "PID" in refused_command(0, status=2)
    assert "--cgroup" in refused_command(busy.pid, "--cgroup", "/x", status=2)
    assert "--cgroup" in refused_command("--cgroup", "x", status=2)
    with programs.busy(program, None) as other:
        assert f"process {other.pid}" in refused_command(other.pid)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refused_command(busy.pid, "--port", port)
        assert f"127.0.0.1:{port}" in text and os.strerror(errno.EADDRINUSE) in text
    assert "192.0.2.1:0" in refused_command(busy.pid, "--host", "192.0.2.1", "--port", "0")
    assert "--host" in refused_command(busy.pid, "--host", "host.invalid", "--port", "0")
    assert "65535" in refused_command(busy.pid, "--port", "70000", status=2)


# ---- The heap profile, on and off behind the token ----


@pytest.fixture(scope="module")
def profiled(compiled, library):
    """A program that allocates only what it is told, but for one block every 10 ms."""
    with steady(compiled(steady_source, *FLAGS), library) as process:
        process.tell("pulse")
        yield process


def posted(server, path, **more):
    status, _, body = server.get(path, method="POST", data=b"", **more)
    return status, json.loads(body)


def test_the_profile_on_and_off(profiled):
    pid = profiled.pid
    with serving(pid, "--interval", "0.2") as server:
        assert server.json(f"api/profile/{pid}") == {"on": False, "mean": 0, "sites": 0, "can": True, "may_write": True}
        # Who may turn it on.
        path = f"api/profile/{pid}?on=1"
        assert posted(server, path, token=False)[0] == 401
        assert posted(server, path, headers={"Origin": "http://elsewhere.example"})[0] == 403
        assert posted(server, f"api/profile/{pid}?on=2")[0] == posted(server, f"api/profile/{pid}")[0] == 400
        assert posted(server, "api/profile/1?on=1")[0] == 404
        assert "kind" in server.refused(f"api/flame/{pid}?kind=none", 400)
        assert not server.json(f"api/profile/{pid}")["on"]
        # Every block is a sample, so that the figures are exact.
        # The program follows with its next call, for which the server waits three seconds.
        until(lambda: posted(server, f"api/profile/{pid}?on=1&rate=1")[0] == 200, "the profile")
        assert server.json(f"api/profile/{pid}")["mean"] == 1
        profiled.tell("keep", 2000, 5000)
        answer = server.json(f"api/flame/{pid}")
        root = answer["root"]

        def find(node, name):
            return node if node[0] == name else next((found for child in node[3] if (found := find(child, name))), None)
        assert find(root, "keep_many")[2] == 5000 * 2048 and find(find(root, "main"), "keep_hay")
        (kept,) = (site for site in answer["sizes"] if site["name"] == "keep_hay")
        assert 5000 * 2048 in [size["value"] for size in kept["sizes"]]
        assert all(len(site["counts"]) == len(answer["temporary"]["heads"]) for site in answer["temporary"]["sites"])
        status, headers, page = server.get(f"flame/{pid}")
        assert status == 200 and headers.get_content_type() == "text/html" and b"keep_hay" in page
        until(lambda: posted(server, f"api/profile/{pid}?on=0")[0] == 200, "the end of the profile")
        assert not server.json(f"api/profile/{pid}")["on"]
    with serving(pid, "--no-token") as server:
        assert posted(server, f"api/profile/{pid}?on=1")[0] == 403, "without a token nothing is written"
        state = server.json(f"api/profile/{pid}")
        assert not state["may_write"] and not state["on"]


# ---- Rss by site ----


def test_rss_by_site(compiled, library):
    """The figures are the program's own."""
    process = Waiting([compiled(why_source)], library, {
        "HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": "1", "HAKMEM_THP": "never"})
    try:
        pid, (slabs, held) = process.ready().pid, map(int, process.ask("pin", 64, 100000))
        (rounding,), (untouched,) = (map(int, process.ask(*words)) for words in (
            ("round", 1030, 1000), ("half", 8 << 20, 4)))
        with serving(pid) as server:
            found = server.json(f"api/why/{pid}")
            sites = {site["name"]: site["flat"] for site in found["sites"]}
            assert (sites["pin"]["held_slabs"], sites["pin"]["held_space"]) == (slabs, held)
            assert sites["rounded"]["rounding_space"] == rounding and sites["half"]["untouched_space"] == untouched
            assert found["exact"] and found["idle"] is None
            idle = server.json(f"api/why/{pid}?idle=1")
            assert {site["name"]: site["flat"]["idle_space"] for site in idle["sites"]}["half"] == untouched
            assert "31" in server.refused(f"api/why/{pid}?idle=31", 400)
        with serving(pid, "--no-token") as server:
            assert server.json(f"api/why/{pid}")["exact"]
            server.refused(f"api/why/{pid}?idle=1", 403)
    finally:
        process.end()


def test_vendored_files_are_those_that_are_named():
    folder = SHARED / "vendor"
    named = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE))
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in named} == named
    assert set(named) == {path.name for path in (*CHART_SCRIPTS, CHART_STYLE) if path.parent == folder}
    assert importlib.resources.files("hakmem.serve").joinpath("page/page.html").is_file()
    assert blackbox.REPOSITORY in page.FOLDER.parents
