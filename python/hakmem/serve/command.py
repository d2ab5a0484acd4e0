"""The command `hakmem serve`."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hakmem.extras import extra
from hakmem.live.memory import LiveError
from hakmem.parameters import FILE, File, Range
from hakmem.processes import ProcessesParameter

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    from hakmem.serve.connections import Connections


class ServeError(click.ClickException):
    """The process cannot be served."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address or name to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8427, show_default=True,
              help="The port to listen on; 0 takes a free one.")
@click.option("--socket", "path", type=File(path_type=Path), metavar="PATH",
              help="Listen on a Unix socket instead, for your own user and root only.")
@click.option("--token-file", type=FILE, metavar="FILE",
              help="Take the token from FILE, which is made if missing. Default: a new one at each start.")
@click.option("--no-token", is_flag=True, help="Answer every request that reaches the port, without a token.")
@click.option("--interval", type=Range(min=0.05, max=3600), metavar="SECONDS",
              help="Time between two looks; more for a large heap.  [default: 1; without PID 15]")
@click.option("--cgroup", metavar="PATH", help="Without PID: only processes of this cgroup and of those below it.")
@click.option("--deadline", type=Range(min=0.5, max=3600),
              metavar="SECONDS", help="Time limit of a look.  [default: 60; without PID 10]")
@click.option("--otlp", metavar="URL", help="Push heap profiles to an OpenTelemetry collector each minute.")
@click.option("--otlp-interval", type=Range(min=1, max=86400), default=60.0, show_default=True, metavar="SECONDS",
              help="Time between two pushes.")
@click.argument("pids", type=ProcessesParameter(), nargs=-1, metavar="[PID|NAME...]")
def serve(pids: tuple[list[int], ...], host: str, port: int, path: Path | None, token_file: Path | None,
          no_token: bool, interval: float | None, cgroup: str | None, deadline: float | None,
          otlp: str | None, otlp_interval: float) -> None:
    """Serve the heaps of processes: a page with live charts at /, /metrics for Prometheus, JSON at /api/snapshot/PID.

    Without PID, the server finds and follows all processes on HAKMEM that you may read, and its metrics are sums by
    unit, container, pod and command. A name stands for all processes that have it. The server runs no code in them.
    It writes to a process only if the page turns a heap profile on or off. It clears the kernel's marks of read
    pages only if the page asks what memory nobody changes. A request needs the token in the address that is
    printed. SIGINT or SIGTERM ends the server."""
    with extra("serve", "hakmem serve"):
        from hakmem.serve import access
        from hakmem.serve import otlp as push
        from hakmem.serve.connections import Connections, bounded_log, room
        from hakmem.serve.fleet import OPEN_MOST, Fleet
        from hakmem.serve.watch import Watches
        from hakmem.serve.web import application
    if path and (token_file or no_token):
        raise click.UsageError("--socket has no token: the kernel says who asks")
    if token_file and no_token:
        raise click.UsageError("--token-file and --no-token exclude each other")
    token = None if path or no_token else read_token(token_file)
    wanted = list(dict.fromkeys(itertools.chain(*pids)))

    if cgroup and wanted:
        raise click.UsageError("--cgroup chooses among all processes: it does not go with a PID")
    tree = tree_of(cgroup)
    try:
        collector = push.address_of(otlp) if otlp else None
    except ValueError as error:
        raise click.UsageError(f"--otlp {otlp}: {error}") from error
    bounded_log()
    try:
        connections = Connections(room(len(wanted) or OPEN_MOST + 1), trusting=bool(path or token))
    except ValueError as error:
        raise ServeError(str(error)) from error

    async def run() -> None:
        # Made here, because a worker's lock and pipes belong to the running loop.
        watches = Watches(wanted, deadline or 60, interval or 1) if wanted else Fleet(
            tree, deadline or 10, interval or 15)
        try:
            try:
                await watches.start()
            except LiveError as error:
                raise ServeError(str(error)) from error
            listener = listen_at(path) if path else listen(host, port)
            loopback = not path and access.is_loopback(listener.getsockname()[0])
            doors: list[Middleware]
            if path:
                doors, text = [access.own_user_only], str(path)
            else:
                address = shown(listener.getsockname())
                doors = [access.own_pages_only(loopback), *([access.token_only(token)] if token else [])]
                text = f"http://{address}/" + (f"?token={token}" if token and not token_file else "")
                warn(loopback, token, address)
            app = application(watches, doors, bool(path or token), connections)
            if collector:
                pushing.append(asyncio.create_task(push.Pusher(collector, otlp_interval, watches).run()))
            await answer(app, connections, listener, text)
        finally:
            for task in pushing:
                task.cancel()
            await asyncio.gather(*pushing, return_exceptions=True)
            await watches.end()
            if path and listened_at:
                path.unlink(missing_ok=True)

    listened_at: list[Path] = []
    pushing: list[asyncio.Task[None]] = []

    def listen_at(path: Path) -> socket.socket:
        made = listen_on_path(path)
        listened_at.append(path)
        return made
    asyncio.run(run())


def warn(loopback: bool, token: str | None, address: str) -> None:
    """Tells who else can see the figures."""
    if not token:
        who = "every user of this machine" if loopback else f"whoever reaches {address}"
        click.echo(f"hakmem: warning: {who} sees these processes' memory figures and mappings, without a "
                   "token", err=True)
    elif not loopback:
        click.echo(
            f"hakmem: warning: the token and the figures cross the network to {address} as they are: nothing encrypts "
            "them", err=True)


def read_token(file: Path | None) -> str:
    """Returns the token in a file, or a new one."""
    from hakmem.serve import access

    try:
        return access.token_of_file(file) if file else access.new_token()
    except ValueError as error:
        raise ServeError(f"--token-file {file}: {error}") from error
    except OSError as error:
        raise ServeError(f"--token-file {file}: {error.strerror}") from error


def tree_of(path: str | None) -> str:
    """Returns a cgroup as /proc/PID/cgroup names it. path: that, or its folder below /sys/fs/cgroup."""
    if path is None:
        return "/"
    inside = path.removeprefix("/sys/fs/cgroup")
    if not path.startswith("/") or not inside.startswith("/") and inside:
        raise click.UsageError(f"--cgroup {path}: a path from / on is wanted, such as /system.slice")
    return inside.rstrip("/") or "/"


def listen_on_path(path: Path) -> socket.socket:
    """Returns a listening Unix socket that only this user may open."""
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
        made.listen()
    except OSError as error:
        made.close()
        what = os.strerror(error.errno) if error.errno else str(error)
        if error.errno == errno.EADDRINUSE:
            what = ("a socket is there already: if no server uses it, remove it" if path.is_socket() else
                    "something else is there already")
        raise ServeError(f"--socket {path}: {what}") from error
    finally:
        os.umask(before)
    return made


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at the address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ServeError(f"--host {host}: {getattr(error, 'strerror', None) or error}") from error
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen()
    except OSError as error:
        made.close()
        raise ServeError(
            f"cannot listen on {shown(address)}: {os.strerror(error.errno) if error.errno else error}") from error
    return made


def shown(address: tuple[Any, ...]) -> str:
    """Returns an address and its port as a URL writes them."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


async def answer(app: web.Application, connections: Connections, listener: socket.socket, text: str) -> None:
    """Serves until a signal ends it."""
    from aiohttp import web

    from hakmem.serve.connections import IDLE_SECONDS, LINGER_SECONDS, listen_on

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # Requests that are no HTTP get a 400. The terminal need not mention them.
    quiet = logging.getLogger("hakmem.serve.http")
    quiet.setLevel(logging.CRITICAL + 1)
    # aiohttp 3.8 waits for nobody here.
    more: dict[str, Any] = {"shutdown_timeout": 2} if hasattr(web, "AppKey") else {}
    runner = web.AppRunner(app, access_log=None, logger=quiet, keepalive_timeout=IDLE_SECONDS,
                           lingering_time=LINGER_SECONDS, **more)
    await runner.setup()
    assert runner.server
    server = await listen_on(listener, connections.factory(runner.server))
    sweeping = asyncio.create_task(connections.keep_sweeping())
    try:
        click.echo(text)
        await ended.wait()
    finally:
        sweeping.cancel()
        server.close()
        await runner.cleanup()
