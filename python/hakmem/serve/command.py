"""The command `hakmem serve`."""

import asyncio
import os
import signal
import socket

import click
from aiohttp import web

from hakmem.live.memory import LiveError
from hakmem.serve.watch import Watch
from hakmem.serve.web import application, is_loopback


class ServeError(click.ClickException):
    """It cannot be served."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address or name to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8427, show_default=True,
              help="0 takes one that is free.")
@click.option("--interval", type=click.FloatRange(min=0.05, max=3600), default=1.0, show_default=True,
              metavar="SECONDS", help="From one look to the next; a large heap is looked at less often.")
@click.argument("pids", type=click.IntRange(min=1), nargs=-1, required=True, metavar="PID...")
def serve(pids, host, port, interval):
    """Serve the heaps of processes: a page with live charts at /, /metrics for Prometheus, JSON at /api/snapshot/PID.

    Nothing runs in the processes. SIGINT or SIGTERM ends it."""
    watches = []
    for pid in dict.fromkeys(pids):
        try:
            watches.append(Watch(pid))
        except LiveError as error:
            raise ServeError(str(error)) from error
    listener = listen(host, port)
    address = listener.getsockname()
    if not is_loopback(address[0]):
        click.echo(f"hakmem: warning: whoever reaches {shown(address)} sees these processes' memory figures, without "
                   "a password", err=True)
    asyncio.run(answer(application(watches, interval, is_loopback(address[0])), listener, address))


def listen(host, port):
    """A socket that listens there."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ServeError(f"--host {host}: {getattr(error, 'strerror', None) or error}") from error
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen(64)
    except OSError as error:
        made.close()
        raise ServeError(f"cannot listen on {shown(address)}: {os.strerror(error.errno)}") from error
    return made


def shown(address):
    """An address and its port as they stand in a URL."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


async def answer(app, listener, address):
    """Serves until a signal ends it."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        click.echo(f"http://{shown(address)}/")
        await ended.wait()
    finally:
        await runner.cleanup()
