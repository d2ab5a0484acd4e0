"""What all answers share: which process is asked for, and how errors look."""

from aiohttp import web

WATCHES = web.AppKey("watches", dict)
PPROF = "/debug/pprof"


class NoSuchProcess(web.HTTPNotFound):
    """A PID that is not served."""


def wanted(request, text):
    """The Watch of a PID in an address."""
    watches = request.app[WATCHES]
    if text.isascii() and text.isdigit() and int(text) in watches:
        return watches[int(text)]
    raise NoSuchProcess(text=f"process {text!r} is not served here; served are {', '.join(map(str, watches))}")


def fresh(response):
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def error_answer(request, status, text, headers=None):
    """JSON; for profilers text, which they show when this header says that it is meant for them."""
    if PPROF in request.path:
        return fresh(web.Response(text=f"{text}\n", status=status, headers={"X-Go-Pprof": "1", **(headers or {})}))
    return web.json_response({"error": text}, status=status, headers=headers)
