"""Protects hakmem serve from clients that hold connections and descriptors, send endless requests, or fill its log."""

import asyncio
import errno
import json
import logging
import resource
import socket
import types

import blackbox
import pytest
from aiohttp.web import HTTPRequestTimeout
from serving import COMMAND, refused_command, serving, until
from test_trust_serve import raw

from hakmem.live.memory import LiveError
from hakmem.serve import connections as limits
from hakmem.serve import pprof
from hakmem.serve.connections import Connection, Connections, Few, peer_of, room
from hakmem.serve.watch import WAITING_MOST, Watch


def with_descriptors(number):
    """The command under a limit of descriptors, which it cannot raise."""
    return ["bash", "-c", f'ulimit -n {number}; exec "$@"', "bash", *COMMAND]


def connected(server):
    host, _, port = server.url.split("/")[2].partition(":")
    return socket.create_connection((host, int(port)), blackbox.HANG)


def closed(plug):
    """Whether the server has closed the connection. It sent nothing."""
    plug.setblocking(False)
    try:
        return plug.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno == errno.ECONNRESET


# ---- The server ----


def test_idle_clients_do_not_keep_others_waiting(honest):
    """They are more than the server has descriptors. It closes the oldest, answers, and logs nothing."""
    with serving(honest, command=with_descriptors(256)) as server:
        idle = [connected(server) for _ in range(400)]
        try:
            assert server.get("metrics")[0] == 200
            until(lambda: closed(idle[0]), "the oldest is closed")
            until(lambda: sum(not closed(plug) for plug in idle) <= limits.PEER_MOST, "few are left")
        finally:
            for plug in idle:
                plug.close()
        assert server.get("metrics")[0] == 200
        server.process.terminate()
        assert server.process.wait(blackbox.HANG) == 0 and server.process.stderr.read() == ""


def test_the_limit_of_descriptors_is_raised(honest):
    command = ["bash", "-c", 'ulimit -S -n 64; exec "$@"', "bash", *COMMAND]
    with serving(honest, command=command) as server:
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard or soft >= limits.ALL_MOST


def test_too_few_descriptors_are_an_error(honest, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert "64" in refused_command(honest)


def test_long_and_endless_bodies(honest):
    with serving(honest) as server:
        path = f"/debug/pprof/symbol?pid={honest}"
        for token, status in (("TOKEN\r\n", 413), ("", 401)):
            assert raw(server, f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 999999999\r\n"
                               "\r\n")[0] == status
        # A chunked body does not tell how long it is. Its length is counted.
        with connected(server) as plug:
            plug.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n".encode())
            plug.sendall((b"100000\r\n" + bytes(1 << 20) + b"\r\n") * 3)
            assert read_answer(plug).startswith(b"HTTP/1.1 413 ")
        assert server.get("metrics")[0] == 200


def test_a_client_that_goes_in_its_request(honest):
    """It is no error of the server's."""
    with serving(honest) as server:
        with connected(server) as plug:
            plug.sendall(f"POST /debug/pprof/symbol?pid={honest} HTTP/1.1\r\nHost: localhost\r\n"
                         f"Authorization: Bearer {server.token}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n"
                         "\r\n".encode())
            assert plug.recv(100).startswith(b"HTTP/1.1 100"), "it is being answered"
        assert server.get("metrics")[0] == 200
        server.process.terminate()
        assert server.process.wait(blackbox.HANG) == 0 and server.process.stderr.read() == ""


def test_a_head_that_does_not_end(honest):
    with serving(honest) as server, connected(server) as plug:
        plug.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
        assert plug.recv(1) == b"", "the server closes it"


def test_a_connection_is_kept_for_the_token_alone(honest):
    with serving(honest) as server, connected(server) as plug:
        for _ in range(2):
            plug.sendall(f"GET /api/processes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}"
                         "\r\n\r\n".encode())
            head, _, body = read_answer(plug).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and json.loads(body)["processes"]
        plug.sendall(b"GET /api/processes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(plug).startswith(b"HTTP/1.1 401 ")
        with connected(server) as stranger:
            stranger.sendall(b"GET /api/processes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(stranger).startswith(b"HTTP/1.1 401 ") and stranger.recv(1) == b""


def read_answer(plug):
    """An answer that tells its length."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += plug.recv(1)
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    while length:
        part = plug.recv(length)
        head, length = head + part, length - len(part)
    return head


# ---- The limits ----


class Wire(asyncio.Transport):
    """A transport that notes whether it was closed."""

    def __init__(self, address):
        super().__init__({"peername": address})
        self.aborted = False

    def abort(self):
        self.aborted = True


class Clients:
    """Connections to a server, and its clock."""

    def __init__(self, **most):
        self.time = 0
        self.connections = Connections(now=lambda: self.time, **most)

    def connect(self, address="10.0.0.1"):
        self.time += 0.001
        one = Connection(self.connections, asyncio.Protocol())
        one.connection_made(Wire((address, 1)))
        return one

    def ask(self, one, known=True):
        """Has a request answered on a connection."""
        async def handler(_):
            one.known = known
            return types.SimpleNamespace(force_close=lambda: None)
        asyncio.run(self.connections.answering(types.SimpleNamespace(transport=one.transport), handler))

    def all_open(self, *some):
        return [not one.transport.aborted for one in some]


def test_who_is_closed_for_a_new_connection():
    """The oldest stranger; if there is none, the one that has had no request for the longest time; then the others."""
    clients = Clients(most=3, peer_most=3)
    first, second, third = (clients.connect() for _ in range(3))
    clients.ask(first)
    clients.connect()
    assert clients.all_open(first, second, third) == [True, False, True]
    clients.connect()
    assert clients.all_open(first, third) == [True, False]
    for one in list(clients.connections.open.values())[::-1]:
        clients.time += 1
        clients.ask(one)
    *_, last = clients.connections.open.values()
    clients.connect()
    assert clients.all_open(first, last) == [True, False]
    for one in clients.connections.open.values():
        one.requests = 1
    first.since = clients.time
    clients.connect()
    assert clients.all_open(first) == [True] and len(clients.connections.open) == 3


def test_without_a_token_a_request_makes_no_friend():
    """Otherwise clients that ask once and stay would leave new ones no time to ask."""
    clients = Clients(most=3, peer_most=3, trusting=False)
    first, second, third = (clients.connect() for _ in range(3))
    for one in (second, first):
        clients.time += 1
        clients.ask(one)
    clients.connect()
    assert clients.all_open(first, second, third) == [True, True, False]
    new = clients.connect()
    assert clients.all_open(first, second, new) == [True, False, True]


def test_a_peer_has_no_more_than_its_share():
    clients = Clients(most=10, peer_most=2)
    others = [clients.connect(f"10.0.0.{number}") for number in range(2, 8)]
    greedy = [clients.connect() for _ in range(20)]
    assert clients.all_open(*greedy) == [False] * 18 + [True] * 2 and all(clients.all_open(*others))
    greedy[-1].connection_lost(None)
    greedy[-1].connection_lost(None)
    assert clients.connections.peers["10.0.0.1"] == 1 and len(clients.connections.open) == 7


def test_deadlines():
    clients = Clients()
    stranger, refused, known, asking = (clients.connect() for _ in range(4))
    clients.ask(known)
    asking.requests = 1
    clients.time = 1
    clients.ask(refused, known=False)
    clients.time = limits.HEAD_SECONDS
    clients.connections.sweep()
    assert clients.all_open(stranger, refused, known, asking) == [True, True, True, True]
    clients.time += 0.5
    clients.connections.sweep()
    assert clients.all_open(stranger, refused, known, asking) == [False, True, True, True]
    clients.time += limits.IDLE_SECONDS
    clients.connections.sweep()
    assert clients.all_open(stranger, refused, known, asking) == [False, False, False, True]


@pytest.mark.parametrize("one, other, same", [
    ("127.0.0.1", "127.9.9.9", True), ("127.0.0.1", "::1", False), ("127.0.0.1", "::ffff:127.0.0.1", True),
    ("10.0.0.1", "10.0.0.2", False), ("2001:db8::1", "2001:db8::ffff:2", True),
    ("2001:db8::1", "2001:db8:0:1::1", False), ("fe80::1%2", "fe80::2%3", True), ("10.0.0.1", "::ffff:10.0.0.1", True)])
def test_what_one_peer_is(one, other, same):
    assert (peer_of(Wire((one, 1))) == peer_of(Wire((other, 2)))) == same


@pytest.mark.parametrize("soft, hard, found, raised", [
    (1024, 20000, limits.ALL_MOST, None), (256, 20000, limits.ALL_MOST, 612), (256, 256, 156, 256),
    (64, 300, 200, 300), (resource.RLIM_INFINITY, resource.RLIM_INFINITY, limits.ALL_MOST, None),
    (64, resource.RLIM_INFINITY, limits.ALL_MOST, 612), (64, 107, None, 107)])
def test_room_for_connections(monkeypatch, soft, hard, found, raised):
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: given.append(pair))
    if found is None:
        with pytest.raises(ValueError):
            room(1)
    else:
        assert room(1) == found
    assert given == ([] if raised is None else [(raised, hard)])


def test_the_log_is_bounded():
    """A few lines in a time; the first of the next time tells how many were left out."""
    now, written = [0.0], []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())
    handler.addFilter(Few(lambda: now[0]))
    log = logging.Logger("log")
    log.addHandler(handler)
    for number in range(1000):
        log.error("%d", number)
    assert written == [str(number) for number in range(limits.LINES_MOST)]
    now[0] = limits.LINES_SECONDS
    log.error("%s", "later")
    assert str(1000 - limits.LINES_MOST) in written[-1] and len(written) == limits.LINES_MOST + 1
    now[0] *= 2
    log.error("last")
    assert written[-1] == "last"


def test_a_body_that_does_not_come(monkeypatch):
    monkeypatch.setattr(pprof, "BODY_SECONDS", 0.01)
    with pytest.raises(HTTPRequestTimeout):
        asyncio.run(pprof.body_of(types.SimpleNamespace(read=asyncio.Event().wait)))


def test_few_requests_wait_for_one_worker():
    async def run():
        watch = Watch(1, 1)
        there = asyncio.Event()

        async def answer(_):
            await there.wait()
            return "answer"
        watch.target.ask = answer
        waiting = [asyncio.create_task(watch.asked("look")) for _ in range(WAITING_MOST)]
        await asyncio.sleep(0)
        with pytest.raises(LiveError):
            await watch.asked("look")
        there.set()
        assert await asyncio.gather(*waiting) == ["answer"] * WAITING_MOST
        assert await watch.asked("look") == "answer"
    asyncio.run(run())
