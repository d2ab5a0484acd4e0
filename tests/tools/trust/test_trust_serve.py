"""Protects hakmem serve from hostile targets, hostile requests, and other users."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import time

import blackbox
import pytest
from aiohttp.web import HTTPServiceUnavailable
from hostile import ENVIRONMENT, hostile, packed
from serving import COMMAND, refused_command, serving, until

from hakmem.serve import access
from hakmem.serve import target as serve_target
from hakmem.serve.pprof import PLACES, PROFILES_MOST, place


@pytest.fixture(scope="module")
def server(honest):
    """One server for all requests that change nothing. Its standard error must be empty at the end."""
    with serving(honest) as made:
        yield made
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(blackbox.HANG) == 0
        assert made.process.stderr.read() == ""


def raw(server, text):
    """(status, body) for a request that is sent unchanged."""
    host, _, port = server.url.split("/")[2].partition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(text.replace("TOKEN", f"Authorization: Bearer {server.token}").encode("latin-1"))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read().decode()


# ---- Who is answered ----

PATHS = ("", "metrics", "api/processes", "api/snapshot/{}", "map/{}", "debug/pprof/heap?debug=1",
         "debug/pprof/", "nowhere")


def test_without_the_token_nothing_is_told(server, honest):
    """Any user of this machine can reach loopback, and /debug/pprof/heap?debug=1 has all mappings of root's process."""
    for path in PATHS:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic x"},
                        {"Authorization": "Basic eDp5"}, {"Authorization": f"Digest {server.token}"},
                        {"Cookie": "hakmem-1=x"}, {"Authorization": "Bearer \xff"}):
            status, got, body = server.get(path.format(honest), token=False, headers=headers)
            assert status == 401 and got["WWW-Authenticate"].startswith("Basic"), (path, headers, body)
            assert str(honest).encode() not in body and server.token.encode() not in body
    assert server.get("debug/pprof/heap?debug=1&token=x", token=False)[0] == 401


def test_ways_to_give_the_token(server):
    assert server.get("metrics")[0] == 200
    assert server.get(f"metrics?token={server.token}", token=False)[0] == 200
    status, headers, _ = server.get("", token=False, headers={"Cookie": "a=b"})
    assert status == 401
    # What a browser does: the address with the token leads to one without, and a cookie that no page can read.
    connection = http.client.HTTPConnection(server.url.split("/")[2])
    connection.request("GET", f"/?token={server.token}")
    answer = connection.getresponse()
    cookie = answer.getheader("Set-Cookie")
    assert (answer.status, answer.getheader("Location")) == (303, "/") and answer.read() is not None
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert server.get("api/processes", token=False, headers={"Cookie": cookie.partition(";")[0]})[0] == 200


def test_a_token_of_a_file(honest, tmp_path):
    file = tmp_path / "token"
    assert len(access.token_of_file(file)) >= 32 and stat.S_IMODE(file.stat().st_mode) == 0o600
    with serving(honest, "--token-file", file) as server:
        assert server.token == "", "it is not printed"
        server.token = file.read_text().strip()
        assert server.get("metrics")[0] == 200 and server.get("metrics", token=False)[0] == 401
    file.chmod(0o644)
    assert str(file) in refused_command(honest, "--token-file", file)
    for mode, owner, text in ((0o600, 0, "x"), (0o600, 65534, "x" * 40), (0o660, 0, "x" * 40), (0o600, 0, "a b" * 10)):
        (tmp_path / "other").write_text(text)
        (tmp_path / "other").chmod(mode)
        if owner and os.geteuid() != 0:
            continue
        os.chown(tmp_path / "other", owner or os.geteuid(), -1)
        with pytest.raises(ValueError):
            access.token_of_file(tmp_path / "other")
    (tmp_path / "other").chmod(0o640)
    (tmp_path / "other").write_text("x" * 40)
    assert access.token_of_file(tmp_path / "other") == "x" * 40
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError):
        access.token_of_file(tmp_path / "fifo")
    assert "--no-token" in refused_command(honest, "--token-file", file, "--no-token", status=2)


def test_no_token_is_warned_of(honest):
    with serving(honest, "--no-token") as server:
        assert server.get("metrics", token=False)[0] == 200
        assert server.get("metrics", token=False, headers={"Origin": "http://evil.example"})[0] == 403
        server.process.terminate()
        assert server.process.communicate()[1]


def test_a_socket_for_its_own_user(honest, tmp_path):
    path = tmp_path / "socket"
    process = subprocess.Popen([*COMMAND, str(honest), "--socket", str(path)], env=blackbox.environment(ENVIRONMENT),
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def ask(**more):
            return blackbox.run(["python3", "-c", f"""
import socket
made = socket.socket(socket.AF_UNIX)
made.connect({str(path)!r})
made.sendall(b"GET /metrics HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n")
print(made.recv(1 << 16).decode())"""], **more)
        assert "200 OK" in ask().stdout
        # The kernel identifies even a client that passes the file's mode.
        os.chmod(path, 0o666)
        for folder in (tmp_path, *tmp_path.parents[:-2]):
            folder.chmod(folder.stat().st_mode | 0o011)
        if os.geteuid() == 0:
            assert "403 Forbidden" in ask(user="nobody").stdout
    finally:
        process.terminate()
        assert process.wait(blackbox.HANG) == 0
        process.stdout.close()
    assert not path.exists()
    (tmp_path / "there").write_text("")
    assert str(tmp_path / "there") in refused_command(honest, "--socket", tmp_path / "there")
    assert (tmp_path / "there").exists()
    with socket.socket(socket.AF_UNIX) as left:  # as of a server that was killed
        left.bind(str(tmp_path / "left"))
    assert str(tmp_path / "left") in refused_command(honest, "--socket", tmp_path / "left")


# ---- What is asked ----


@pytest.mark.parametrize("headers",
                         [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"},
                          {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.example"},
                          {"Host": "127.0.0.1.evil.example"}])
def test_another_sites_page_is_refused(server, headers):
    status, _, body = server.get("metrics", headers=headers)
    assert status == 403 and json.loads(body)["error"]


def test_its_own_page_is_answered(server):
    origin = server.url.rstrip("/")
    for headers in ({"Origin": origin}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert server.get("metrics", headers=headers)[0] == 200


@pytest.mark.parametrize("host", ["[", "]", "[::1", "a:b", "127.0.0.1:99999999", "", "\xff", "a b", "x" * 5000,
                                  "[::1]x", "@"])
def test_a_bad_host(server, host):
    for path in ("/metrics", "/debug/pprof/heap", "/?token=x"):
        status, body = raw(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nTOKEN\r\nConnection: close\r\n\r\n")
        assert status in (400, 403) and "Traceback" not in body, (status, body)


def test_numbers_of_many_digits(server, honest):
    many = "9" * 5000
    for path in (f"api/history/{honest}?after={many}", f"debug/pprof/heap?seconds={many}",
                 f"debug/pprof/heap?debug={many}"):
        status, _, body = server.get(path)
        assert status == 400 and len(body) < 300, body
    for path in (f"api/snapshot/{many}", f"map/{many}", f"{many}/debug/pprof/heap", f"debug/pprof/heap?pid={many}",
                 "api/snapshot/%D9%A1", "api/snapshot/%FF"):
        status, _, body = server.get(path)
        assert status == 404 and len(body) < 300, body
    assert server.get(f"debug/pprof/symbol?0x{many}")[0] == 400


@pytest.mark.parametrize("kind", ["text/plain; charset=nothing", "text/plain; charset=\xff",
                                  "text/plain; charset=utf-16",
                                  "text/plain; charset=idna", "multipart/form-data", "\xff"])
def test_a_bad_charset(server, kind):
    for body in (b"", b"\xff\xfe\xfd", b"0x1000"):
        status, _, text = server.get("debug/pprof/symbol", method="POST", data=body, headers={"Content-Type": kind})
        assert status in (200, 400), text
    status, body = raw(server, "GET /metrics HTTP/9.9\r\nHost: localhost\r\nTOKEN\r\n\r\n")
    assert status == 400 and "Traceback" not in body


# ---- Whom it looks at ----


def test_a_target_that_holds_it_up(program, honest, honest_rows):
    """serve ends its worker at the deadline. Meanwhile it reads the other target and answers requests."""
    with hostile(program) as target:
        registry = target.show_empty_heap(honest_rows)["registry"]
        with serving(honest, target.pid, "--interval", "0.1", "--deadline", "4") as server:
            def about():
                return {row["pid"]: row for row in server.json("api/processes")["processes"]}
            until(lambda: about()[target.pid]["state"] == "running", "the first look")
            target.hold(registry, 4096)
            until(lambda: "4 seconds" in about()[target.pid]["problem"], "the deadline")
            number = server.json(f"api/history/{honest}")["points"][-1]["number"]
            until(lambda: server.json(f"api/history/{honest}")["points"][-1]["number"] > number + 3,
                  "the other goes on")
            assert server.get(f"{target.pid}/debug/pprof/heap")[0] == 503
            assert about()[target.pid]["state"] == "unread" and server.get("metrics")[0] == 200
            server.process.terminate()
            assert server.process.wait(blackbox.HANG) == 0, "and it ends"
            workers = subprocess.run(["ps", "--ppid", str(server.process.pid), "-o", "pid="], capture_output=True,
                                     check=False)
            assert not workers.stdout.strip()


def test_a_worker_that_is_ended_in_an_answer(monkeypatch):
    """Its pipe is full, and nobody reads it any more."""
    monkeypatch.setattr(serve_target, "BOOT", """
import sys, time
def say(data, size):
    sys.stdout.buffer.write(b"J" + size.to_bytes(8, "little") + data)
    sys.stdout.buffer.flush()
say(b'{"begun": 1}', 12)
sys.stdin.readline()
say(b"", 1 << 28)
while True:
    sys.stdout.buffer.write(bytes(1 << 20))
    time.sleep(0.02)
""")

    async def run():
        target = serve_target.Target(os.getpid(), 1)
        for _ in range(2):
            with pytest.raises(serve_target.Late):
                await target.ask("look")
            assert target.process is None
        waiting = asyncio.create_task(target.ask("look"))
        await asyncio.sleep(0.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    monkeypatch.setattr(serve_target, "END_SECONDS", blackbox.HANG)
    begun = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begun < blackbox.HANG, "each time the worker ends at once"


def test_a_target_that_stops_making_sense(program, honest, honest_rows):
    """One line says so, the watch goes on, and a heap that is consistent again is shown again."""
    with hostile(program) as target:
        registry = target.show_empty_heap(honest_rows)["registry"]
        with serving(target.pid, "--interval", "0.1") as server:
            def about():
                return server.json("api/processes")["processes"][0]
            until(lambda: about()["state"] == "running", "the first look")
            target.poke(registry, b"\x08" * 4096)
            until(lambda: about()["state"] == "unread", "damage")
            first = about()["problem"]
            assert first.isprintable() and "0x808080808080808" in first
            target.poke(target.table, packed([]))
            until(lambda: about()["problem"] not in (first, ""), "a table without rows")
            target.poke(registry, bytes(4096))
            target.show(target.rows)
            until(lambda: about()["state"] == "running", "sense again")
            server.process.terminate()
            assert server.process.communicate()[1] == ""


def test_profiles_at_one_time_are_few():
    """A request that comes when all places are taken is told to come later."""
    async def run():
        app = {PLACES.key: asyncio.Semaphore(PROFILES_MOST)}
        async with contextlib.AsyncExitStack() as taken:
            for _ in range(PROFILES_MOST):
                await taken.enter_async_context(place(app))
            with pytest.raises(HTTPServiceUnavailable) as caught:
                await taken.enter_async_context(place(app))
            assert caught.value.headers["Retry-After"] == "5"
        async with place(app):
            pass
    asyncio.run(run())
