"""Clients without a token that do a server what harm they can: they hold connections, send heads a byte at a time, send
long bodies, send no HTTP, read no answers, and come as many as fit.

    hostile_clients.py PORT SECONDS SEED

prints as JSON how many connections each kind made."""

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
import time

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\n"


class Client:
    """One connection."""

    def __init__(self, reader, writer, chance, until):
        self.reader, self.writer, self.chance, self.until = reader, writer, chance, until

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self):
        """Reads until the server closes."""
        while await self.reader.read(1 << 16):
            pass


async def idle(client):
    """Sends nothing."""
    await client.rest()


async def slow(client):
    """Sends the head of a request byte by byte, for ever."""
    for byte in GET * 1000:
        await client.send(bytes([byte]))
        await asyncio.sleep(0.2)


async def stranger(client):
    """Asks without a token, and comes again at once."""
    await client.send(GET + b"\r\n")
    await client.rest()


async def huge(client):
    """Announces a body of a gigabyte, and sends as much of it as the server takes."""
    await client.send(POST + b"Content-Length: 999999999\r\n\r\n")
    while True:
        await client.send(bytes(1 << 16))
        await asyncio.sleep(0)


async def chunked(client):
    """Sends a body that has no end."""
    await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        await client.send(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        await asyncio.sleep(0.01)


async def waits(client):
    """Announces a body, and sends none."""
    await client.send(POST + b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n")
    await client.rest()


async def malformed(client):
    """Sends what is no request, or a wrong one."""
    chance = client.chance
    await client.send(chance.choice((
        chance.randbytes(chance.randrange(1, 1 << 14)), b"\0" * (1 << 16), b"GET " + b"/" * (1 << 17), b"\r\n" * 4096,
        GET + b"x: " + b"y" * (1 << 17) + b"\r\n\r\n", GET + b"x: y\r\n" * 5000 + b"\r\n",
        GET.replace(b"1.1", b"9.9") + b"\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n", POST + b"Content-Length: " + b"9" * 26 + b"\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        GET + b"Host: other\r\n\r\n", GET + b"Authorization: Basic " + b"A" * 8000 + b"\r\n\r\n",
        GET + b"Cookie: " + b"a=b;" * 1900 + b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
    await client.rest()


async def deaf(client):
    """Sends many requests at once, and reads no answer."""
    client.writer.transport.pause_reading()
    while True:
        await client.send((GET + b"\r\n") * 1000)
        await asyncio.sleep(1)


async def reset(client):
    """Ends the connection with a reset in the middle of a request."""
    await client.send(GET)
    plug = client.writer.get_extra_info("socket")
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


# How many connections of each kind there are at one time.
KINDS = {idle: 700, slow: 300, stranger: 4, huge: 4, chunked: 20, waits: 50, malformed: 4, deaf: 50, reset: 2}


async def again_and_again(kind, port, seed, until, counts):
    """Makes connections of one kind, one after the other."""
    chance = random.Random(seed)
    while time.monotonic() < until:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            counts[kind.__name__] += 1
            try:
                await asyncio.wait_for(kind(Client(reader, writer, chance, until)), max(until - time.monotonic(), 0))
            finally:
                writer.transport.abort()
        # Closed at once, an idle client would come back as fast as it can: no longer an idle one.
        await asyncio.sleep(chance.random() * (0.02 if kind in (stranger, malformed, reset) else 1))


async def attack(port, seconds, seed):
    """Runs all kinds, and returns their counts."""
    until, counts = time.monotonic() + seconds, {kind.__name__: 0 for kind in KINDS}
    await asyncio.gather(*(again_and_again(kind, port, f"{seed} {kind.__name__} {number}", until, counts)
                           for kind, many in KINDS.items() for number in range(many)))
    return counts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))))
