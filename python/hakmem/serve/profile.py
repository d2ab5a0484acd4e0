"""The heap profile on the page: its state, turning it on and off, and a flame graph of what is in use."""

from __future__ import annotations

from aiohttp import web

from hakmem.amount import MEAN_MOST
from hakmem.serve.answers import Key, fresh, wanted, whole_number
from hakmem.serve.pprof import apart, outcome, place

MAY_WRITE = Key[bool]("may_write")
KINDS = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")
# The longest watch for unchanged memory, in seconds: shorter than a worker's time limit.
IDLE_MOST = 30


def routes() -> list[web.RouteDef]:
    """Returns the routes."""
    return [web.get("/api/profile/{pid}", show_state), web.post("/api/profile/{pid}", switch),
            web.get("/api/flame/{pid}", show_tree), web.get("/flame/{pid}", show_page),
            web.get("/api/why/{pid}", show_why)]


async def show_state(request: web.Request) -> web.Response:
    """Answers whether the profile is on."""
    watch = await wanted(request, request.match_info["pid"])
    state = await outcome(watch.asked("switches"))
    return fresh(web.json_response({**state, "may_write": MAY_WRITE.of(request.app)}))


async def switch(request: web.Request) -> web.Response:
    """Turns the profile on or off (?on=1 or 0). rate: mean bytes between samples; the process's own by default."""
    watch = await wanted(request, request.match_info["pid"])
    if not MAY_WRITE.of(request.app):
        raise web.HTTPForbidden(text="a server without a token writes into no process: start it with one")
    on, rate = (whole_number(name, request.query.get(name, default), "a number")
                for name, default in (("on", ""), ("rate", "0")))
    if on > 1 or rate > MEAN_MOST:
        raise web.HTTPBadRequest(text=f"on={on}, rate={rate}: on is 0 or 1, and a rate is {MEAN_MOST:,} at most")
    # A separate worker, so that the looks go on while it waits for the process.
    async with place(request.app), apart(watch) as target:
        return fresh(web.json_response(await outcome(target.ask("switch", on=bool(on), mean=rate))))


def kind_of(request: web.Request) -> str:
    """Returns the sample type that the request names."""
    kind = request.query.get("kind", KINDS[0])
    if kind not in KINDS:
        raise web.HTTPBadRequest(text=f"kind is one of {', '.join(KINDS)}")
    return kind


async def show_tree(request: web.Request) -> web.Response:
    """Answers with the tree of calls."""
    watch, kind = await wanted(request, request.match_info["pid"]), kind_of(request)
    async with place(request.app), apart(watch) as target:
        return fresh(web.json_response(await outcome(target.ask("tree", kind=kind))))


async def show_page(request: web.Request) -> web.Response:
    """Answers with the flame graph as one file, which may be passed on."""
    watch, kind = await wanted(request, request.match_info["pid"]), kind_of(request)
    async with place(request.app), apart(watch) as target:
        body = await outcome(target.ask("flame", kind=kind))
    return fresh(web.Response(body=body, content_type="text/html", charset="utf-8"))


async def show_why(request: web.Request) -> web.Response:
    """Answers why memory is resident. ?idle=N: also what nobody changed for N seconds."""
    watch = await wanted(request, request.match_info["pid"])
    idle = whole_number("idle", request.query.get("idle", "0"))
    if idle > IDLE_MOST:
        raise web.HTTPBadRequest(text=f"idle={idle}: {IDLE_MOST} seconds at most are watched")
    if idle and not MAY_WRITE.of(request.app):
        raise web.HTTPForbidden(text="a server without a token clears no marks of the kernel's: start it with one")
    async with place(request.app), apart(watch) as target:
        return fresh(web.json_response(await outcome(target.ask("why", idle=idle))))
