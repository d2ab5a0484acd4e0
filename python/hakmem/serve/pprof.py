"""/debug/pprof/: serves the heap profiles at the addresses and in the form of Go programs, for tools that read those.

If several processes are served, ?pid=PID or /PID before the address names one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from hakmem.live.memory import LiveError, NoProcess
from hakmem.serve.access import LATER_SECONDS
from hakmem.serve.answers import PPROF, WATCHES, Key, fresh, known, whole_number
from hakmem.serve.target import Target

if TYPE_CHECKING:
    from hakmem.serve.watch import Watch

T = TypeVar("T")

PLACES = Key[asyncio.Semaphore]("places")
# How many profiles are made at the same time, each in a process of its own.
PROFILES_MOST = 4
# The most addresses in one request for names, and how an address is written.
ADDRESSES_MOST = 100_000
ADDRESS = re.compile(r"(0[xX])?[0-9a-fA-F]{1,16}")
# The default sample type of each profile.
DEFAULTS = {"heap": "inuse_space", "allocs": "alloc_space"}
# How long the body of a request may take.
BODY_SECONDS = 30
# The longest time over which a difference is taken.
SECONDS_MOST = 3600


def routes() -> list[web.RouteDef]:
    """Returns the routes, with and without a PID."""
    return [route for before in ("", r"/{pid:\d+}") for route in (
        web.get(f"{before}{PPROF}/", show_index),
        web.get(f"{before}{PPROF}/{{name:{'|'.join(DEFAULTS)}}}", show_profile),
        web.get(f"{before}{PPROF}/symbol", show_symbols), web.post(f"{before}{PPROF}/symbol", show_symbols))]


async def show_profile(request: web.Request) -> web.Response:
    """Answers with a profile."""
    watch = selected(request)
    if watch is None:
        raise web.HTTPBadRequest(text="which process? Add ?pid=PID or ?name=NAME; served are "
                                 + ", ".join(str(one["pid"]) for one in WATCHES.of(request.app).listed()))
    kind = DEFAULTS[request.match_info["name"]]
    seconds, debug, symbols = (whole_number(name, request.query.get(name, "0"))
                               for name in ("seconds", "debug", "symbols"))
    if "seconds" in request.query and not 1 <= seconds <= SECONDS_MOST:
        raise web.HTTPBadRequest(text=f"seconds={seconds}: from 1 to {SECONDS_MOST} can be waited for")
    if debug and seconds:
        raise web.HTTPBadRequest(text="seconds and debug do not go together")
    async with place(request.app), apart(watch) as target:
        if debug:
            return text_answer((await outcome(target.ask("text"))).decode())
        if seconds:
            await outcome(target.ask("before"))
            await asyncio.sleep(seconds)
        data = await outcome(target.ask("profile", kind=kind, symbols=bool(symbols)))
    return fresh(web.Response(body=data, content_type="application/octet-stream", headers={
        "Content-Disposition": f'attachment; filename="{request.match_info["name"]}-{watch.pid}.pb.gz"'}))


async def show_symbols(request: web.Request) -> web.Response:
    """Answers with functions' names, for addresses joined by + in the body or after the ?, as pprof sends them."""
    watch = selected(request)
    async with place(request.app):  # a few bodies at a time, because each is kept in memory
        asked = await body_of(request) if request.method == "POST" else addresses_in(request)
    words = [word for word in asked.split("+", ADDRESSES_MOST) if word]
    if len(words) > ADDRESSES_MOST or not all(ADDRESS.fullmatch(word) for word in words):
        raise web.HTTPBadRequest(text=f"addresses are wanted as 0x1234+0x5678, {ADDRESSES_MOST:,} at most")
    if watch is None:  # the request names no process
        return text_answer("num_symbols: 0\n")
    async with place(request.app), apart(watch) as target:
        names = await outcome(target.ask("symbols", addresses=[int(word, 16) for word in words]))
    return text_answer("num_symbols: 1\n" + "".join(f"{address} {name}\n" for address, name in names.items()))


async def body_of(request: web.Request) -> str:
    """Returns the body of a request, unless it takes too long."""
    try:
        return (await asyncio.wait_for(request.read(), BODY_SECONDS)).decode("latin-1")
    except RuntimeError as error:  # aiohttp's, if the connection is closed meanwhile
        raise ConnectionResetError(str(error)) from error
    except asyncio.TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the body did not come within {BODY_SECONDS} seconds") from None


def addresses_in(request: web.Request) -> str:
    """Returns the query without the token and the process, which may be in it too."""
    others = ("token=", "pid=", "name=")
    return "+".join(part for part in request.query_string.split("&") if not part.startswith(others))


async def show_index(request: web.Request) -> web.Response:
    """Answers with a list of the processes and their profiles."""
    only, watches = selected(request), WATCHES.of(request.app)
    lines = ["Heap profiles by hakmem serve, in pprof's format", ""]
    for about in watches.listed():
        if only is None or about["pid"] == only.pid:
            # Of many processes, nobody wants to wait for the states.
            opened = watches.watches.get(str(about["pid"]))
            state = f": {await state_of(opened)}" if opened else ""
            lines.append(f"process {about['pid']}, {about['command']}{state}")
            lines += [f"    /{about['pid']}{PPROF}/{name}" for name in DEFAULTS]
    lines += ["", "?seconds=N: what changes in N seconds; ?debug=1: as text; ?symbols=1: with functions' names in it"]
    return text_answer("\n".join(lines) + "\n")


# ---- Parts ----


def selected(request: web.Request) -> Watch | None:
    """Returns the Watch that the request names, or the only one; None if there are several and it names none. A name
    means the largest process of that command, unit, container or pod: it stays as processes come and go."""
    watches, text, name = WATCHES.of(request.app), request.match_info.get("pid", request.query.get("pid")), (
        request.query.get("name"))
    if text is None and name is not None:
        text = watches.pid_named(name) or name
    if text is None:
        return watches.only()
    return known(watches, text)


async def outcome(answer: Awaitable[T]) -> T:
    """Returns a worker's answer; raises an HTTP error if there is none."""
    try:
        return await answer
    except NoProcess as error:
        raise web.HTTPGone(text=str(error)) from error
    except LiveError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error


@contextlib.asynccontextmanager
async def place(app: web.Application) -> AsyncIterator[None]:
    """Takes one of the places for profiles in the making; answers 503 if all are taken."""
    if PLACES.of(app).locked():
        raise web.HTTPServiceUnavailable(text=f"{PROFILES_MOST} profiles are being made already; ask again later",
                                         headers={"Retry-After": str(LATER_SECONDS)})
    async with PLACES.of(app):
        yield


@contextlib.asynccontextmanager
async def apart(watch: Watch) -> AsyncIterator[Target]:
    """Yields a separate worker, so that the looks for the charts go on meanwhile."""
    target = Target(watch.pid, watch.target.seconds, watch.target.begun)
    try:
        yield target
    finally:
        await target.end()


async def state_of(watch: Watch) -> str:
    """Returns whether the process has a profile, in words."""
    try:
        answer: dict[str, str] = await watch.asked("state")
        return answer["state"]
    except LiveError as error:
        return str(error)


def text_answer(text: str) -> web.Response:
    """Returns an answer of plain text."""
    return fresh(web.Response(text=text))
