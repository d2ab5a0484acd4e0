"""What all answers share: which process a request names, and how errors look."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from hakmem.clean import clean

if TYPE_CHECKING:
    from hakmem.serve.watch import Watch

R = TypeVar("R", bound=web.StreamResponse)

# The Watch of each served PID.
WATCHES: web.AppKey[dict[str, Watch]] = web.AppKey("watches", dict)
PPROF = "/debug/pprof"
# The most digits of a number, and how much of a wrong one an answer repeats.
DIGITS_MOST, SHOWN = 18, 40


class NoSuchProcess(web.HTTPNotFound):
    """The PID is not served here."""


def wanted(request: web.Request, text: str) -> Watch:
    """Returns the Watch of a PID in an address."""
    watches = request.app[WATCHES]
    if text not in watches:
        raise NoSuchProcess(text=f"process {clean(text, SHOWN)!r} is not served here; served are {', '.join(watches)}")
    return watches[text]


def whole_number(name: str, text: str, what: str = "a whole number") -> int:
    """Returns the number that a parameter gives; raises HTTPBadRequest if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MOST):
        raise web.HTTPBadRequest(text=f"{name}={clean(text, SHOWN)}: {what} is wanted")
    return int(text)


def fresh(response: R) -> R:
    """Adds the headers that every answer needs."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def error_answer(request: web.Request, status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """Returns an error as JSON. Profilers get text, with the header that makes them show it."""
    if PPROF in request.path:
        return fresh(web.Response(text=f"{text}\n", status=status, headers={"X-Go-Pprof": "1", **(headers or {})}))
    return web.json_response({"error": text}, status=status, headers=headers)
