"""The addresses of the server and their answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from hakmem.clean import clean
from hakmem.serve import page, pprof, profile
from hakmem.serve.access import REALM, Refused
from hakmem.serve.answers import SHOWN, WATCHES, Key, NoSuchProcess, error_answer, fresh, wanted, whole_number
from hakmem.serve.metrics import Text

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

    from hakmem.serve.connections import Connections
    from hakmem.serve.watch import Watches

METRICS = Key[Text]("metrics")
# The longest request: pprof.ADDRESSES_MOST addresses.
BODY_MOST = 2 << 20


def application(watches: Watches, doors: Sequence[Middleware], may_write: bool,
                connections: Connections) -> web.Application:
    """Returns the web application. doors: the middlewares of access.py that a request must pass. may_write: whether
    requests may turn things on and off in the processes."""
    app = web.Application(client_max_size=BODY_MOST, middlewares=[
        connections.answering, errors_as_json, *doors, connections.let_in, no_long_body])
    WATCHES.put(app, watches)
    METRICS.put(app, Text(watches))
    profile.MAY_WRITE.put(app, may_write)
    pprof.PLACES.put(app, asyncio.Semaphore(pprof.PROFILES_MOST))
    app.add_routes([
        web.get("/", show_page), web.get("/metrics", show_metrics), web.get("/api/processes", list_processes),
        web.get("/api/snapshot/{pid}", show_snapshot), web.get("/api/history/{pid}", show_history),
        web.get("/map/{pid}", show_map), *profile.routes(), *pprof.routes()])
    app.cleanup_ctx.append(looking)
    return app


async def looking(app: web.Application) -> AsyncIterator[None]:
    """Looks at the processes while the application runs."""
    task = asyncio.create_task(WATCHES.of(app).run())
    task.add_done_callback(tell_failure)
    yield
    WATCHES.of(app).stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await WATCHES.of(app).end()


def tell_failure(task: asyncio.Task[None]) -> None:
    """Logs the error of a task that failed."""
    if not task.cancelled() and task.exception():
        logging.error("looking at a process failed", exc_info=task.exception())


# ---- Errors ----


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware that turns errors into answers."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        text, allow = error.text or error.reason, None
        if error.status == 404 and not isinstance(error, NoSuchProcess):
            text = f"there is nothing at {clean(request.path, SHOWN)}; there are /, /metrics, /api/processes, " \
                   "/api/snapshot/PID, /api/history/PID, /api/profile/PID, /map/PID, /flame/PID and /debug/pprof/"
        elif error.status == 405:
            text = f"{clean(request.method, SHOWN)} is not for {clean(request.path, SHOWN)}: GET is"
            allow = {"Allow": "GET, HEAD"}
        elif isinstance(error, Refused):
            allow = REALM
        elif error.status == 503:
            allow = {name: error.headers[name] for name in ("Retry-After",) if name in error.headers}
        return error_answer(request, error.status, text, allow)
    except ConnectionError:
        raise  # the client has gone
    except Exception:
        logging.exception("%s %s", request.method, request.path)
        return error_answer(request, 500, "an error of hakmem serve itself; its output says more")


@web.middleware
async def no_long_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware that refuses a body that is too long before it comes."""
    if (request.content_length or 0) > BODY_MOST:
        raise web.HTTPRequestEntityTooLarge(BODY_MOST, request.content_length or 0)
    return await handler(request)


# ---- Answers ----


def as_json(value: object) -> web.Response:
    """Returns a value as an answer of compact JSON."""
    return fresh(web.json_response(value, dumps=lambda made: json.dumps(made, separators=(",", ":"))))


async def show_page(request: web.Request) -> web.Response:
    """Answers with the page."""
    text, policy = page.made()
    return fresh(web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": policy}))


async def show_metrics(request: web.Request) -> web.Response:
    """Answers with the metrics."""
    body, kind = METRICS.of(request.app).latest(request.headers.get("Accept", ""))
    return fresh(web.Response(body=body, headers={"Content-Type": kind}))


async def list_processes(request: web.Request) -> web.Response:
    """Answers with the list of processes."""
    watches = WATCHES.of(request.app)
    return as_json({"interval": watches.interval, "processes": watches.listed()})


async def show_snapshot(request: web.Request) -> web.Response:
    """Answers with the snapshot of a process."""
    watch = await wanted(request, request.match_info["pid"])
    heap = await pprof.outcome(watch.asked("superslabs")) if request.query.get("superslabs") == "1" else (
        watch.sample.heap)
    return as_json({**heap, "process": watch.about()})


async def show_history(request: web.Request) -> web.Response:
    """Answers with the points of a process."""
    watch = await wanted(request, request.match_info["pid"])
    after = whole_number("after", request.query.get("after", "0"), "the number of a look")
    return as_json({"process": watch.about(), "points": watch.history(after)})


async def show_map(request: web.Request) -> web.Response:
    """Answers with the map of a heap."""
    watch = await wanted(request, request.match_info["pid"])
    return fresh(
        web.Response(body=await pprof.outcome(watch.asked("map")), content_type="text/html", charset="utf-8"))
