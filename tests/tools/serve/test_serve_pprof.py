"""Protects /debug/pprof/ of hakmem serve: what the real pprof reads from it, and what is refused."""

import gzip
import json
import os
import re
import sys
import threading
import time

import blackbox
import profiled as programs
import pytest
from serving import ENVIRONMENT, serving, until

from hakmem.heap.profile_pb2 import Profile

# Go compiles its pprof at the first use.
TIMEOUT = 300
KEPT = 20000 * 3072
NEAR = 0.05


@pytest.fixture(scope="session")
def profiled_program(compiled):
    return compiled(programs.SOURCE, *programs.FLAGS)


@pytest.fixture
def running(profiled_program, library):
    with programs.profiled(profiled_program, library) as made:
        made.tell("keep", 3000, 20000)
        yield made


@pytest.fixture
def server(running):
    with serving(running.pid) as made:
        yield made


def pprof(folder, *arguments):
    """Runs `go tool pprof ARGUMENTS`, which keeps what it fetches in the folder."""
    return blackbox.run(["go", "tool", "pprof", *arguments], timeout=TIMEOUT, cwd=folder, env={
        "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": str(folder), "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false", **({"GOCACHE": cache} if (cache := os.environ.get("GOCACHE")) else {})})


def top(folder, *arguments):
    """({function: flat bytes}, total, the whole text) of pprof's table."""
    done = pprof(folder, "-top", "-unit=B", "-nodecount=1000", "-nodefraction=0", *arguments)
    assert done.status == 0, done.report()
    rows = [line.split(None, 5) for line in done.stdout.partition("cum%\n")[2].splitlines()]
    return ({row[5]: int(row[0].removesuffix("B")) for row in rows},
            int(re.search(r"of (-?\d+)B? total", done.stdout)[1]), done.stdout)


def profile_at(server, path):
    status, headers, body = server.get(path)
    assert status == 200 and headers.get_content_type() == "application/octet-stream", (status, body)
    made = Profile()
    made.ParseFromString(gzip.decompress(body))
    return made


def total(profile, kind):
    place = [profile.string_table[one.type] for one in profile.sample_type].index(kind)
    return sum(sample.value[place] for sample in profile.sample)


def refused(server, path, status, **more):
    """The text of an error in pprof's format."""
    seen, headers, body = server.get(path, **more)
    assert (seen, headers.get_content_type(), headers["X-Go-Pprof"]) == (status, "text/plain", "1"), (seen, body)
    return body.decode()


def test_the_real_pprof_opens_it(server, tmp_path):
    """By its own address, with names from the files here."""
    expected = total(profile_at(server, "debug/pprof/heap"), "inuse_space")
    functions, whole, text = top(tmp_path, f"{server.pprof}debug/pprof/heap")
    assert whole == expected == pytest.approx(KEPT, rel=NEAR)
    assert functions["keep_hay"] == pytest.approx(KEPT, rel=NEAR) and functions["main"] == 0
    assert not [name for name in functions if "malloc" in name or "hak_" in name]
    assert "Type: inuse_space" in text and "stacks by unwind tables" in text


def test_allocs_begins_with_what_was_allocated(server, running, tmp_path):
    running.tell("drop", 20000)
    functions, whole, text = top(tmp_path, f"{server.pprof}debug/pprof/allocs")
    assert "Type: alloc_space" in text and whole == pytest.approx(KEPT, rel=NEAR)
    assert total(profile_at(server, "debug/pprof/heap"), "inuse_space") < KEPT / 100


def test_names_by_the_server(server, tmp_path):
    """As from a machine without these files."""
    functions, whole, _ = top(tmp_path, "-symbolize=remote", f"{server.pprof}debug/pprof/heap")
    assert functions["keep_hay"] == pytest.approx(KEPT, rel=NEAR) and whole >= functions["keep_hay"]
    path = tmp_path / "with-names"
    path.write_bytes(server.get("debug/pprof/heap?symbols=1")[2])
    functions, _, _ = top(tmp_path, "-symbolize=none", path)
    assert functions["keep_hay"] == pytest.approx(KEPT, rel=NEAR)
    assert server.get("debug/pprof/symbol")[2] == b"num_symbols: 1\n"
    assert "0x1234+0x5678" in refused(server, "debug/pprof/symbol?hay", 400)


def test_the_text(server, running, tmp_path):
    running.tell("drop", 5000)
    status, headers, body = server.get("debug/pprof/heap?debug=1&gc=1")
    assert status == 200 and headers.get_content_type() == "text/plain"
    path = tmp_path / "text"
    path.write_bytes(body)
    expected = profile_at(server, "debug/pprof/heap")
    for kind, kept in (("inuse_space", KEPT * 3 / 4), ("alloc_space", KEPT)):
        functions, whole, _ = top(tmp_path, f"-sample_index={kind}", path)
        assert whole == total(expected, kind)
        assert functions["keep_hay"] == pytest.approx(kept, rel=NEAR)


def test_a_difference_over_seconds(server, running):
    found = {}

    def fetch(name):
        found[name] = profile_at(server, f"debug/pprof/{name}?seconds=4")
    threads = [threading.Thread(target=fetch, args=(name,)) for name in ("heap", "allocs")]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(2)
    running.tell("drop", 5000)
    running.tell("spread", 3000)
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun >= 4
    for name, kind in (("heap", "inuse_space"), ("allocs", "alloc_space")):
        profile = found[name]
        assert profile.string_table[profile.default_sample_type] == kind
        assert total(profile, "inuse_space") == pytest.approx(-2000 * 3072, rel=0.15)
        assert total(profile, "alloc_space") == pytest.approx(3000 * 3072, rel=0.1)
        assert total(profile, "freed_objects") == pytest.approx(5000, rel=0.1)
        assert profile.duration_nanos >= 4e9


def test_a_profile_off_stopped_and_started(profiled_program, library, tmp_path):
    with programs.profiled(profiled_program, library, mean=None) as running, serving(running.pid) as server:
        text = refused(server, "debug/pprof/heap", 503)
        assert f"process {running.pid} takes no heap profile" in text
        assert "HAKMEM_HEAP_PROFILE=FILE" in text and "hak_profile_start" in text
        assert "off: process" in server.get("debug/pprof/")[2].decode()
        done = pprof(tmp_path, "-top", f"{server.pprof}debug/pprof/heap")
        assert done.status != 0, done.report()
        assert "takes no heap profile: `hakmem heap --start" in done.stderr, "pprof shows the reason"
        assert "503 Service Unavailable: process" in hakmem_heap(f"{server.pprof}debug/pprof/heap", status=1).stderr
        assert f"process {running.pid} takes no heap profile" in hakmem_heap(running.pid, status=1).stderr
        running.tell("start", 4096)
        running.tell("keep", 3000, 20000)
        assert total(profile_at(server, "debug/pprof/heap"), "inuse_space") == pytest.approx(KEPT, rel=NEAR)
        assert "on, samples 4096 bytes apart" in server.get("debug/pprof/")[2].decode()
        running.tell("stop")
        assert total(profile_at(server, "debug/pprof/heap"), "inuse_space") == pytest.approx(KEPT, rel=NEAR)
        assert "stopped, samples 4096 bytes apart" in server.get("debug/pprof/")[2].decode()
        answer = []
        waiting = threading.Thread(target=lambda: answer.append(refused(server, "debug/pprof/heap?seconds=4", 503)))
        waiting.start()
        time.sleep(2)
        running.tell("start", 4096)
        waiting.join()
        assert "was started or stopped" in answer[0]


def test_several_processes_and_the_end_of_one(running, profiled_program, library, tmp_path):
    with programs.profiled(profiled_program, library) as other, serving(running.pid, other.pid) as server:
        other.tell("keep", 3000, 5000)
        assert f"?pid=PID; served are {running.pid}, {other.pid}" in refused(server, "debug/pprof/heap", 400)
        for path in ("debug/pprof/heap?pid=1", "1/debug/pprof/heap", "debug/pprof/?pid=1"):
            assert f"is not served here; served are {running.pid}, {other.pid}" in refused(server, path, 404)
        for process, expected in ((running, KEPT), (other, KEPT / 4)):
            for path in (f"debug/pprof/heap?pid={process.pid}", f"{process.pid}/debug/pprof/heap"):
                assert total(profile_at(server, path), "inuse_space") == pytest.approx(expected, rel=2 * NEAR)
        index = server.get("debug/pprof/")[2].decode()
        assert f"/{running.pid}/debug/pprof/heap\n" in index and f"/{other.pid}/debug/pprof/allocs\n" in index
        # Names are those of the process in the address. Without one it is not known whose addresses they are.
        functions, _, _ = top(tmp_path, "-symbolize=remote", f"{server.pprof}{other.pid}/debug/pprof/heap")
        assert functions["keep_hay"] == pytest.approx(KEPT / 4, rel=2 * NEAR)
        assert server.get("debug/pprof/symbol?0x1000")[2] == b"num_symbols: 0\n"
        assert top(tmp_path, f"{server.pprof}debug/pprof/heap?pid={other.pid}")[0]["keep_hay"] > 0
        other.end()
        until(lambda: server.json("api/processes")["processes"][1]["state"] == "ended", "the end")
        assert f"process {other.pid} ended" in refused(server, f"{other.pid}/debug/pprof/heap", 410)
        assert server.get(f"{running.pid}/debug/pprof/heap")[0] == 200


def test_what_is_refused(server):
    for query, message in (("seconds=0", "seconds=0: from 1 to 3600"), ("seconds=-1", "seconds=-1: a whole number"),
                           ("seconds=3601", "from 1 to 3600"), ("seconds=x", "seconds=x: a whole number"),
                           ("seconds=1&debug=1", "seconds and debug do not go together"), ("debug=x", "debug=x"),
                           ("symbols=y", "symbols=y")):
        assert message in refused(server, f"debug/pprof/heap?{query}", 400)
    assert "there is nothing at /debug/pprof/goroutine" in refused(server, "debug/pprof/goroutine", 404)
    assert "POST is not for" in refused(server, "debug/pprof/heap", 405, method="POST")
    assert "evil.example" in refused(server, "debug/pprof/heap", 403, headers={"Host": "evil.example"})


def hakmem_heap(*arguments, status=0):
    done = blackbox.run([sys.executable, "-m", "hakmem", "heap", *map(str, arguments)], env=ENVIRONMENT)
    assert done.status == status and "Traceback" not in done.stderr, done.report()
    return done


def test_hakmem_heap_of_a_process_and_of_an_address(server, running, tmp_path):
    path = tmp_path / "own.gz"
    running.tell("write", path)
    own, process, address = (json.loads(hakmem_heap(source, "--json").stdout)
                             for source in (path, running.pid, f"{server.pprof}debug/pprof/heap"))
    assert own["sites"] == process["sites"] == address["sites"] and own["totals"] == process["totals"]
    assert process["files"] == [f"process {running.pid}"] and own["period"] == process["period"] == 4096
    running.tell("spread", 3000)
    changed = json.loads(hakmem_heap(running.pid, "--diff", path, "--json").stdout)
    assert changed["totals"]["inuse_space"] == pytest.approx(3000 * 3072, rel=0.1)
    text = hakmem_heap(running.pid, "-n", 1).stdout
    assert f"process {running.pid}" in text and "keep_hay" in text
    hakmem_heap(running.pid, "--html", tmp_path / "page.html")
    assert f"Heap of process {running.pid}" in (tmp_path / "page.html").read_text()


def test_what_hakmem_heap_cannot_read(server):
    assert "there is no process 4194304" in hakmem_heap(4194304, status=1).stderr
    assert "400 Bad Request: seconds=0" in hakmem_heap(f"{server.pprof}debug/pprof/heap?seconds=0", status=1).stderr
    assert "http://127.0.0.1:1/: cannot be fetched" in hakmem_heap("http://127.0.0.1:1/", status=1).stderr
    assert "not a profile" in hakmem_heap(f"{server.pprof}metrics", status=1).stderr
