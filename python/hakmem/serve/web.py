"""What is answered at which address."""

import asyncio
import ipaddress
import json
import logging
from urllib.parse import urlsplit

from aiohttp import web

from hakmem.live.heap import as_dict
from hakmem.live.map import map_page
from hakmem.serve import page
from hakmem.serve.metrics import metrics_text

WATCHES = web.AppKey("watches", dict)
INTERVAL = web.AppKey("interval", float)
TASKS = web.AppKey("tasks", list)
METRICS_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
NO_PROFILE = ("the heap profile's tables cannot be read from outside the process; start the program with "
              "HAKMEM_HEAP_PROFILE=FILE (./hakmem run --heap-profile FILE) and open the file that it writes")


def application(watches, interval, loopback):
    """The web application. On `loopback`, a request for another host's name is refused: no page elsewhere can ask."""
    app = web.Application(middlewares=[errors_as_json, *([own_name_only] if loopback else [])])
    app[WATCHES] = {watch.pid: watch for watch in watches}
    app[INTERVAL] = interval
    app.add_routes([
        web.get("/", show_page), web.get("/metrics", show_metrics), web.get("/api/processes", list_processes),
        web.get("/api/snapshot/{pid}", show_snapshot), web.get("/api/history/{pid}", show_history),
        web.get("/map/{pid}", show_map), web.get("/debug/pprof/heap", show_profile)])
    app.cleanup_ctx.append(looking)
    return app


async def looking(app):
    """Looks at the processes while the application runs."""
    app[TASKS] = [asyncio.create_task(watch.run(app[INTERVAL])) for watch in app[WATCHES].values()]
    for task in app[TASKS]:
        task.add_done_callback(tell_failure)
    yield
    for task in app[TASKS]:
        task.cancel()
    await asyncio.gather(*app[TASKS], return_exceptions=True)


def tell_failure(task):
    if not task.cancelled() and task.exception():
        logging.error("looking at a process failed", exc_info=task.exception())


# ---- Errors ----


@web.middleware
async def errors_as_json(request, handler):
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        text = error.text
        if error.status == 404 and not isinstance(error, NoSuchProcess):
            text = f"there is nothing at {request.path}; there are /, /metrics, /api/processes, /api/snapshot/PID, " \
                   "/api/history/PID, /map/PID and /debug/pprof/heap?pid=PID"
        elif error.status == 405:
            text = f"{request.method} is not for {request.path}: GET is"
        return json_error(error.status, text, {"Allow": "GET, HEAD"} if error.status == 405 else None)
    except Exception:
        logging.exception("%s %s", request.method, request.path)
        return json_error(500, "an error of hakmem serve itself; its output says more")


@web.middleware
async def own_name_only(request, handler):
    name = urlsplit(f"//{request.host}").hostname or ""
    if not is_loopback(name):
        raise web.HTTPForbidden(
            text=f"this server is not {name!r}: it answers as localhost unless --host says otherwise")
    return await handler(request)


def is_loopback(name):
    """Whether a host's name or address is this machine's own."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def json_error(status, text, headers=None):
    return web.json_response({"error": text}, status=status, headers=headers)


class NoSuchProcess(web.HTTPNotFound):
    """A PID that is not served."""


def wanted(request, text):
    """The Watch of a PID in an address."""
    watches = request.app[WATCHES]
    if text.isascii() and text.isdigit() and int(text) in watches:
        return watches[int(text)]
    raise NoSuchProcess(text=f"process {text!r} is not served here; served are {', '.join(map(str, watches))}")


# ---- Answers ----


def fresh(response):
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def as_json(value):
    return fresh(web.json_response(value, dumps=lambda made: json.dumps(made, separators=(",", ":"))))


async def show_page(request):
    text, policy = page.made()
    return fresh(web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": policy}))


async def show_metrics(request):
    return fresh(web.Response(body=metrics_text(request.app[WATCHES].values()).encode(), headers=METRICS_TYPE))


async def list_processes(request):
    return as_json({"interval": request.app[INTERVAL],
                    "processes": [watch.about() for watch in request.app[WATCHES].values()]})


async def show_snapshot(request):
    watch = wanted(request, request.match_info["pid"])
    sample, units = watch.sample, request.query.get("superslabs") == "1"
    heap = await asyncio.to_thread(as_dict, sample.shot, units)
    return as_json({**heap, "rss": sample.rss, "resident": sample.resident.parts(), "minor_faults": sample.minor_faults,
                    "major_faults": sample.major_faults, "process": watch.about()})


async def show_history(request):
    watch = wanted(request, request.match_info["pid"])
    after = request.query.get("after", "0")
    if not (after.isascii() and after.isdigit()):
        raise web.HTTPBadRequest(text=f"after={after}: the number of a look is wanted")
    return as_json({"process": watch.about(), "points": watch.history(int(after))})


async def show_map(request):
    watch = wanted(request, request.match_info["pid"])
    return fresh(web.Response(text=await asyncio.to_thread(map_page, watch.sample.shot), content_type="text/html"))


async def show_profile(request):
    if "pid" in request.query:
        wanted(request, request.query["pid"])
    raise web.HTTPNotImplemented(text=NO_PROFILE)
