"""What all answers share: which process a request names, and how errors look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiohttp import web

from hakmem.clean import clean
from hakmem.live.memory import LiveError, NoProcess

if TYPE_CHECKING:
    from hakmem.serve.watch import Watch, Watches

R = TypeVar("R", bound=web.StreamResponse)
T = TypeVar("T")


class Key(str, Generic[T]):
    """A key of what an application keeps: aiohttp's AppKey, which versions before 3.9 lack."""

    def of(self, app: web.Application) -> T:
        """Returns what the application keeps."""
        made: T = app[self.key]
        return made

    def put(self, app: web.Application, value: T) -> None:
        """Has the application keep a value."""
        app[self.key] = value

    @property
    def key(self) -> Any:
        """The key as aiohttp wants it."""
        return KEYS.setdefault(str(self), web.AppKey(str(self)) if hasattr(web, "AppKey") else str(self))


KEYS: dict[str, Any] = {}
WATCHES: Key[Watches] = Key("watches")
PPROF = "/debug/pprof"
# The most digits of a number, and how much of a wrong one an answer repeats.
DIGITS_MOST, SHOWN = 18, 40


class NoSuchProcess(web.HTTPNotFound):
    """The PID is not served here."""


def known(watches: Watches, text: str) -> Watch:
    """Returns the Watch of a PID, without looking at it; raises NoSuchProcess if there is none."""
    watch = watches.known(text)
    if watch is None:
        raise NoSuchProcess(
            text=f"process {clean(text, SHOWN)!r} is not served here; served are {watches.served()}")
    return watch


async def wanted(request: web.Request, text: str) -> Watch:
    """Returns the Watch of a PID in an address. Its looks go on."""
    watches = WATCHES.of(request.app)
    try:
        return await watches.wanted(known(watches, text))
    except NoProcess as error:
        raise web.HTTPGone(text=str(error)) from error
    except LiveError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error


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
