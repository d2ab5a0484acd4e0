"""Bounds what clients can hold: descriptors, connections without a request, and the log.

A full server still serves a new connection, because it closes the oldest one that has no request. aiohttp has no such
limit; other servers stop accepting instead, so that idle clients keep everybody else waiting."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

# The most connections, in all and of one peer.
ALL_MOST, PEER_MOST = 512, 128
# Limits for a connection without a request: before its first request was let in, and after. The first bounds how long
# the head of a request takes; the second, how long a client takes to read an answer and to send its next request.
HEAD_SECONDS, IDLE_SECONDS = 10, 120
# How long a client that was answered may go on sending a body, which is dropped.
LINGER_SECONDS = 2
# Time between two looks for connections that are over these limits.
SWEEP_SECONDS = 1
# How many connections asyncio accepts at once, before it closes any; and how many wait in the kernel.
ACCEPTED_AT_ONCE, QUEUE = 16, 1024
# Descriptors for everything but connections: the server itself and its profiles, and one process with its worker.
DESCRIPTORS, DESCRIPTORS_EACH = 64 + 2 * ACCEPTED_AT_ONCE, 4
LEAST = 8  # connections: one browser opens six
# The most lines of the log in a time.
LINES_MOST, LINES_SECONDS = 10, 60


class Connection(asyncio.Protocol):
    """One connection: aiohttp's protocol behind the limits."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self.connections, self.inner = connections, inner
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.known = False  # whether a request of it was let in
        self.requests = 0  # that are being answered
        self.since = 0.0  # when it was accepted, or its last request ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes its place, which may be another's."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.peer = transport, peer_of(transport)
        self.inner.connection_made(transport)
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leaves its place."""
        self.connections.remove(self)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Passes on what was received."""
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Passes on the end of what is received."""
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        """Passes on that the client reads too slowly."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes on that the client has read."""
        self.inner.resume_writing()

    def close(self) -> None:
        """Closes it at once, whatever is still to be sent."""
        self.connections.remove(self)
        if self.transport:
            self.transport.abort()


class Connections:
    """All connections of the server."""

    def __init__(self, most: int = ALL_MOST, trusting: bool = True, peer_most: int = PEER_MOST,
                 now: Callable[[], float] = time.monotonic) -> None:
        """trusting: whether only trusted clients are let in, so that their connections may outlast those of
        strangers. Without a token everybody is let in, and could fill the server with such connections."""
        self.most, self.trusting, self.peer_most, self.now = most, trusting, min(peer_most, most), now
        self.open: dict[asyncio.BaseTransport, Connection] = {}
        self.peers: Counter[str] = Counter()

    def add(self, new: Connection) -> None:
        """Takes a new connection in. If its peer or the server would have too many then, closes one first."""
        assert new.transport
        new.since = self.now()
        if self.peers[new.peer] >= self.peer_most:
            self.dispensable([one for one in self.open.values() if one.peer == new.peer]).close()
        elif len(self.open) >= self.most:
            self.dispensable(self.open.values()).close()
        self.open[new.transport] = new
        self.peers[new.peer] += 1

    def dispensable(self, connections: Collection[Connection]) -> Connection:
        """Returns the connection to close for a new one: the oldest of a stranger, then the one that has had no
        request for the longest time, then one that is being answered. The oldest of `connections` come first."""
        if self.trusting:
            for one in connections:
                if not one.known and not one.requests:
                    return one
        return min(connections, key=lambda one: (one.requests > 0, one.since))

    def remove(self, old: Connection) -> None:
        """Forgets a connection, if that was not done yet."""
        if old.transport and self.open.pop(old.transport, None):
            self.peers[old.peer] -= 1
            if not self.peers[old.peer]:
                del self.peers[old.peer]

    def sweep(self) -> None:
        """Closes the connections that have waited too long."""
        now = self.now()
        for one in list(self.open.values()):
            if not one.requests and now - one.since >= (IDLE_SECONDS if one.known else HEAD_SECONDS):
                one.close()

    async def keep_sweeping(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()

    def factory(self, inner: Callable[[], asyncio.Protocol]) -> Callable[[], Connection]:
        """Returns what makes a Connection for each connection that is accepted."""
        return lambda: Connection(self, inner())

    def of(self, request: web.Request) -> Connection | None:
        """Returns the connection of a request; None if it was closed."""
        return self.open.get(request.transport) if request.transport else None

    @property
    def answering(self) -> Middleware:
        """Returns the outermost middleware. It notes which connections have a request, and closes those of strangers
        after the answer."""
        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            one = self.of(request)
            if one is None:  # it was closed meanwhile
                return await handler(request)
            one.requests += 1
            try:
                answer = await handler(request)
            finally:
                one.requests -= 1
                one.since = self.now()
            if not one.known:
                answer.force_close()
            return answer
        return note

    @property
    def let_in(self) -> Middleware:
        """Returns the middleware behind those that refuse. It notes that the connection is no stranger's."""
        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            one = self.of(request)
            if one:
                one.known = True
            return await handler(request)
        return note


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Returns by what a peer's connections are counted: its address, or what one host has of addresses."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return "local"  # a Unix socket, which only its own user opens
    address = ipaddress.ip_address(name[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return "local" if address.is_loopback else str(address)


def room(processes: int) -> int:
    """Returns how many connections fit. Raises the limit of descriptors as far as they need, and ValueError if the
    system allows too few."""
    others = DESCRIPTORS + DESCRIPTORS_EACH * processes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ALL_MOST + others
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ALL_MOST
    if soft < others + LEAST:
        raise ValueError(f"{others + LEAST} descriptors are needed, and this shell allows {soft}: raise ulimit -n")
    return soft - others


class Few(logging.Filter):
    """Lets few lines into the log, because clients can cause any number of the same error."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.now = now
        self.begun, self.lines = now(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written. The first of a time tells how many were left out in the time before."""
        if self.now() - self.begun >= LINES_SECONDS:
            left_out, self.begun, self.lines = self.lines - LINES_MOST, self.now(), 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} more messages were left out)"
                record.args = None
        self.lines += 1
        return self.lines <= LINES_MOST


def bounded_log() -> None:
    """Sends the log to standard error, a few lines a minute."""
    handler = logging.StreamHandler()
    handler.addFilter(Few())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="hakmem: %(message)s")


async def listen_on(listener: socket.socket, factory: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    """Returns asyncio's server of a socket."""
    made = await asyncio.get_running_loop().create_server(factory, sock=listener, backlog=ACCEPTED_AT_ONCE)
    listener.listen(QUEUE)
    return made
