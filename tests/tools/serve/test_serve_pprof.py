"""Protects /debug/pprof/ of hakmem serve: the figures that it tells, and what is refused.

tests/tools/heap/test_heap_pprof.py has Go's pprof read from it. Every block is a sample, so that figures are exact."""

import gzip
import json
import sys
import threading

import profiled as programs
import pytest
from inprocess import hakmem
from serving import serving, until

from hakmem.heap.profile_pb2 import Profile

KEPT = 20000 * 3072


@pytest.fixture(scope="session")
def profiled_program(compiled):
    return compiled(programs.SOURCE, *programs.FLAGS)


@pytest.fixture
def running(profiled_program, library):
    with programs.profiled(profiled_program, library, mean=1) as made:
        made.tell("keep", 3000, 20000)
        yield made


@pytest.fixture
def server(running):
    with serving(running.pid) as made:
        yield made


def profile_at(server, path):
    status, headers, body = server.get(path)
    assert status == 200 and headers.get_content_type() == "application/octet-stream", (status, body)
    made = Profile()
    made.ParseFromString(gzip.decompress(body))
    return made


def total(profile, kind):
    place = [profile.string_table[one.type] for one in profile.sample_type].index(kind)
    return sum(sample.value[place] for sample in profile.sample)


def default(profile):
    return profile.string_table[profile.default_sample_type]


def refused(server, path, status, **more):
    """The text of an error in pprof's format."""
    seen, headers, body = server.get(path, **more)
    assert (seen, headers.get_content_type(), headers["X-Go-Pprof"]) == (status, "text/plain", "1"), (seen, body)
    return body.decode()


# A server that waits for a word instead of `seconds` seconds: the test changes the program in between.
WAITING = """
import asyncio, pathlib, sys, types
import hakmem.serve.pprof as pprof
folder = pathlib.Path(sys.argv.pop(1))
async def sleep(seconds):
    (folder / f"{seconds}").touch()
    while not (folder / "go").exists():
        await asyncio.sleep(0.02)
pprof.asyncio = types.SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
from hakmem.cli import main
main()
"""


def test_heap_and_allocs(running, tmp_path):
    """All figures, as a profile, as a text, and as the difference over seconds. Names by the server."""
    with serving(running.pid, command=[sys.executable, "-c", WAITING, str(tmp_path), "serve"]) as server:
        heap, allocs = (profile_at(server, f"debug/pprof/{name}") for name in ("heap", "allocs"))
        assert default(heap) == "inuse_space" and default(allocs) == "alloc_space"
        first = total(heap, "inuse_space")
        assert KEPT <= first < KEPT + 100_000 and total(allocs, "alloc_space") >= KEPT
        assert not any(function.name for function in heap.function)
        named = profile_at(server, "debug/pprof/heap?symbols=1")
        assert {"keep_hay", "main"} <= {named.string_table[function.name] for function in named.function}
        assert server.get("debug/pprof/symbol")[2] == b"num_symbols: 1\n"
        status, headers, body = server.get("debug/pprof/heap?debug=1&gc=1")
        assert status == 200 and headers.get_content_type() == "text/plain"
        assert int(body.split()[3]) == first and b"MAPPED_LIBRARIES:" in body
        found = {}

        def fetch(name, seconds):
            found[name] = profile_at(server, f"debug/pprof/{name}?seconds={seconds}")
        threads = [threading.Thread(target=fetch, args=each) for each in (("heap", 3), ("allocs", 4))]
        for thread in threads:
            thread.start()
        until(lambda: {path.name for path in tmp_path.iterdir()} == {"3", "4"}, "the first looks of both")
        running.tell("drop", 5000)
        running.tell("spread", 3000)
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
        for name, kind in (("heap", "inuse_space"), ("allocs", "alloc_space")):
            profile = found[name]
            assert default(profile) == kind and profile.duration_nanos > 0
            assert (total(profile, "inuse_space"), total(profile, "alloc_space"), total(profile, "freed_objects")) == (
                -2000 * 3072, 3000 * 3072, 5000)


def test_a_profile_off_stopped_and_started(profiled_program, library, tmp_path):
    with programs.profiled(profiled_program, library, mean=None) as running, serving(
            running.pid, command=[sys.executable, "-c", WAITING, str(tmp_path), "serve"]) as server:
        text = refused(server, "debug/pprof/heap", 503)
        assert all(word in text for word in (f"process {running.pid}", "hakmem heap --start", "HAKMEM_HEAP_PROFILE"))
        hakmem("heap", f"{server.pprof}debug/pprof/heap").says(1, "503", running.pid)
        hakmem("heap", running.pid).says(1, running.pid)
        states = [server.get("debug/pprof/")[2]]
        running.tell("start", 1)
        running.tell("keep", 3000, 20000)
        kept = total(profile_at(server, "debug/pprof/heap"), "inuse_space")
        assert KEPT <= kept < KEPT + 100_000
        states.append(server.get("debug/pprof/")[2])
        running.tell("stop")
        assert KEPT <= total(profile_at(server, "debug/pprof/heap"), "inuse_space") <= kept
        states.append(server.get("debug/pprof/")[2])
        assert len(set(states)) == 3, "off, on and stopped"
        answer = []
        waiting = threading.Thread(target=lambda: answer.append(refused(server, "debug/pprof/heap?seconds=4", 503)))
        waiting.start()
        until(lambda: (tmp_path / "4").exists(), "the first look")
        running.tell("start", 4096)
        (tmp_path / "go").touch()
        waiting.join()
        assert answer


def test_several_processes_and_the_end_of_one(running, profiled_program, library):
    with programs.profiled(profiled_program, library, mean=1) as other, serving(running.pid, other.pid) as server:
        other.tell("keep", 3000, 5000)
        both = (str(running.pid), str(other.pid))
        assert all(pid in refused(server, "debug/pprof/heap", 400) for pid in ("?pid=PID", *both))
        for path in ("debug/pprof/heap?pid=1", "1/debug/pprof/heap", "debug/pprof/?pid=1"):
            assert all(pid in refused(server, path, 404) for pid in both)
        for process, expected in ((running, KEPT), (other, KEPT // 4)):
            for path in (f"debug/pprof/heap?pid={process.pid}", f"{process.pid}/debug/pprof/heap"):
                assert 0 <= total(profile_at(server, path), "inuse_space") - expected < 100_000
        index = server.get("debug/pprof/")[2].decode()
        assert f"/{running.pid}/debug/pprof/heap\n" in index and f"/{other.pid}/debug/pprof/allocs\n" in index
        # Names are those of the process in the address. Without one it is not known whose addresses they are.
        assert server.get("debug/pprof/symbol?0x1000")[2] == b"num_symbols: 0\n"
        assert server.get(f"{other.pid}/debug/pprof/symbol")[2] == b"num_symbols: 1\n"
        other.end()
        until(lambda: server.json("api/processes")["processes"][1]["state"] == "ended", "the end")
        assert str(other.pid) in refused(server, f"{other.pid}/debug/pprof/heap", 410)
        assert server.get(f"{running.pid}/debug/pprof/heap")[0] == 200


def test_what_is_refused(server):
    for query in ("seconds=0", "seconds=-1", "seconds=3601", "seconds=x", "debug=x", "symbols=y"):
        assert query in refused(server, f"debug/pprof/heap?{query}", 400)
    text = refused(server, "debug/pprof/heap?seconds=1&debug=1", 400)
    assert "seconds" in text and "debug" in text
    assert "hay" not in refused(server, "debug/pprof/symbol?hay", 400)
    assert "/debug/pprof/goroutine" in refused(server, "debug/pprof/goroutine", 404)
    assert "POST" in refused(server, "debug/pprof/heap", 405, method="POST")
    assert "evil.example" in refused(server, "debug/pprof/heap", 403, headers={"Host": "evil.example"})
    # The same for hakmem heap.
    hakmem("heap", f"{server.pprof}debug/pprof/heap?seconds=0").says(1, "400", "seconds=0")
    hakmem("heap", "http://127.0.0.1:1/").says(1, "http://127.0.0.1:1/")
    hakmem("heap", f"{server.pprof}metrics").says(1, "metrics")


def test_hakmem_heap_of_a_process_and_of_an_address(server, running, tmp_path):
    def told(*words):
        done = hakmem("heap", *words, "--json")
        assert done.status == 0, done.report()
        return json.loads(done.stdout)
    path = tmp_path / "own.gz"
    running.tell("write", path)
    own, process, address = (told(source) for source in (path, running.pid, f"{server.pprof}debug/pprof/heap"))
    assert own["sites"] == process["sites"] == address["sites"] and own["totals"] == process["totals"]
    assert process["files"] == [f"process {running.pid}"] and own["period"] == process["period"] == 1
    running.tell("spread", 300)
    assert told(running.pid, "--diff", path)["totals"]["inuse_space"] == 300 * 3072
    assert hakmem("heap", running.pid, "--html", tmp_path / "page.html").status == 0
    assert str(running.pid) in (tmp_path / "page.html").read_text()
