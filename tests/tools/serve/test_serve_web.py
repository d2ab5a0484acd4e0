"""Protects hakmem serve's answers and refusals."""

import hashlib
import importlib.resources
import re
import signal
import socket

import blackbox
import busy as programs
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import SECONDS, refused_command, serving, until

from hakmem.document import CHART_SCRIPTS, CHART_STYLE, SHARED
from hakmem.serve import page


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
        assert f"process {second.pid}" in about["problem"] and about["ended_at"] > 0
        assert server.get(f"map/{second.pid}")[0] == 200, "the last look stays"
        found = metrics(server)
        assert of(found["hakmem_up"], first.pid) == 1 and of(found["hakmem_up"], second.pid) == 0
        assert {dict(key)["pid"] for key in found["hakmem_mapped_bytes"]} == {str(first.pid)}
        first.end()
        until(lambda: server.json("api/processes")["processes"][0]["state"] == "ended", "the end of all")
        assert metrics(server)["hakmem_up"].keys() and server.get("")[0] == 200


def test_the_map(server, busy):
    status, headers, body = server.get(f"map/{busy.pid}")
    assert status == 200 and headers.get_content_type() == "text/html" and str(busy.pid).encode() in body


def test_errors_are_json(server, busy):
    assert "there is nothing at /nowhere" in server.refused("nowhere", 404)
    for path in ("api/snapshot/1", "api/snapshot/x", "map/1", "api/history/-3"):
        assert f"is not served here; served are {busy.pid}" in server.refused(path, 404)
    assert "after=x" in server.refused(f"api/history/{busy.pid}?after=x", 400)
    assert "POST" in server.refused("metrics", 405, method="POST")


def test_a_page_elsewhere_cannot_have_it_asked(server):
    assert "evil.example" in server.refused("metrics", 403, headers={"Host": "evil.example"})
    assert server.get("metrics", headers={"Host": "localhost:1"})[0] == 200


def test_a_signal_ends_it(server):
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    assert server.process.stderr.read() == ""


def test_other_hosts_are_warned_of(busy):
    with serving(busy.pid, "--host", "0.0.0.0") as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        server.url = f"http://127.0.0.1:{port}/"
        assert server.get("metrics", headers={"Host": "some.name"})[0] == 200
        server.process.terminate()
        assert "warning: the token and the figures cross the network to 0.0.0.0:" in server.process.communicate()[1]


def test_what_cannot_be_served(busy, program):
    assert "there is no process 4194304" in refused_command(busy.pid, 4194304)
    assert "not in the range" in refused_command(0, status=2)
    assert "Missing argument 'PID|NAME...'" in refused_command(status=2)
    with programs.busy(program, None) as other:
        assert f"process {other.pid} does not run on HAKMEM" in refused_command(other.pid)
    assert f"no permission to read process {busy.pid}" in refused_command(busy.pid, user="nobody")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused_command(busy.pid, "--port", port)
    assert "cannot listen on 192.0.2.1:0" in refused_command(busy.pid, "--host", "192.0.2.1", "--port", "0")
    assert "--host host.invalid: " in refused_command(busy.pid, "--host", "host.invalid", "--port", "0")
    assert "65535" in refused_command(busy.pid, "--port", "70000", status=2)


def test_vendored_files_are_those_that_are_named():
    folder = SHARED / "vendor"
    named = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE))
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in named} == named
    assert set(named) == {path.name for path in (*CHART_SCRIPTS, CHART_STYLE) if path.parent == folder}
    assert importlib.resources.files("hakmem.serve").joinpath("page/page.html").is_file()
    assert blackbox.REPOSITORY in page.FOLDER.parents
