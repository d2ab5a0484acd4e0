"""What is answered at which address."""

import asyncio
import ipaddress
import json
import logging
from urllib.parse import urlsplit

from aiohttp import web

from hakmem.live.heap import as_dict
from hakmem.live.map import map_page
from hakmem.serve import page, pprof
from hakmem.serve.answers import WATCHES, NoSuchProcess, error_answer, fresh, wanted
from hakmem.serve.metrics import metrics_text

INTERVAL = web.AppKey("interval", float)
TASKS = web.AppKey("tasks", list)
METRICS_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
# Profilers ask for the names of many addresses at once.
BODY_MOST = 16 << 20


def application(watches, interval, loopback):
    """The web application. On `loopback`, a request for another host's name is refused: no page elsewhere can ask."""
    app = web.Application(client_max_size=BODY_MOST,
                          middlewares=[errors_as_json, *([own_name_only] if loopback else [])])
    app[WATCHES] = {watch.pid: watch for watch in watches}
    app[INTERVAL] = interval
    app.add_routes([
        web.get("/", show_page), web.get("/metrics", show_metrics), web.get("/api/processes", list_processes),
        web.get("/api/snapshot/{pid}", show_snapshot), web.get("/api/history/{pid}", show_history),
        web.get("/map/{pid}", show_map), *pprof.routes()])
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
        text, allow = error.text, None
        if error.status == 404 and not isinstance(error, NoSuchProcess):
            text = f"there is nothing at {request.path}; there are /, /metrics, /api/processes, /api/snapshot/PID, " \
                   "/api/history/PID, /map/PID and /debug/pprof/"
        elif error.status == 405:
            text = f"{request.method} is not for {request.path}: GET is"
            allow = {"Allow": "GET, HEAD"}
        return error_answer(request, error.status, text, allow)
    except Exception:
        logging.exception("%s %s", request.method, request.path)
        return error_answer(request, 500, "an error of hakmem serve itself; its output says more")


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


# ---- Answers ----


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
