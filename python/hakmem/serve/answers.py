"""What all answers share: which process a request names, and how errors look."""

from aiohttp import web

from hakmem.clean import clean

WATCHES = web.AppKey("watches", dict)
PPROF = "/debug/pprof"
# The most digits of a number, and how much of a wrong one an answer repeats.
DIGITS_MOST, SHOWN = 18, 40


class NoSuchProcess(web.HTTPNotFound):
    """The PID is not served here."""


def wanted(request, text):
    """Returns the Watch of a PID in an address."""
    watches = request.app[WATCHES]
    if text not in watches:
        raise NoSuchProcess(text=f"process {clean(text, SHOWN)!r} is not served here; served are {', '.join(watches)}")
    return watches[text]


def whole_number(name, text, what="a whole number"):
    """Returns the number that a parameter gives; raises HTTPBadRequest if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MOST):
        raise web.HTTPBadRequest(text=f"{name}={clean(text, SHOWN)}: {what} is wanted")
    return int(text)


def fresh(response):
    """Adds the headers that every answer needs."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def error_answer(request, status, text, headers=None):
    """Returns an error as JSON. Profilers get text, with the header that makes them show it."""
    if PPROF in request.path:
        return fresh(web.Response(text=f"{text}\n", status=status, headers={"X-Go-Pprof": "1", **(headers or {})}))
    return web.json_response({"error": text}, status=status, headers=headers)
