"""Decides which requests are answered: those with the token that come from this server's own pages or from no page. On
a Unix socket, those of its owner and root.

Any user of a machine can reach its loopback addresses, and any web page can make a browser send requests to them."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
import secrets
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from hakmem.clean import clean
from hakmem.foreign import open_regular

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

TOKEN_BYTES = 24
# The least length of a token from a file, and how many bytes of the file are read.
TOKEN_LEAST, FILE_MOST = 16, 4096
LATER_SECONDS = 5
REALM = {"WWW-Authenticate": 'Basic realm="hakmem serve"'}
FROM_ELSEWHERE = ("cross-site", "same-site")


class Refused(web.HTTPUnauthorized):
    """The token is missing or wrong."""


def new_token() -> str:
    """Returns a random token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_of_file(path: Path) -> str:
    """Returns the token in a file. Creates a missing file, readable only by its owner. Raises ValueError or OSError."""
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        file = open_regular(path)
        if file is None:
            raise ValueError("is no file") from None
        with file:
            token, status = file.pread(FILE_MOST, 0).decode("ascii", "replace").strip(), file.status
        # Anybody who can write the file knows the token.
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise ValueError("may be written by another user: take a file of your own") from None
        if status.st_mode & 0o007:
            raise ValueError("may be read by every user: chmod o= it, and change the token") from None
        if len(token) < TOKEN_LEAST or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"holds no token: {TOKEN_LEAST} or more characters without blanks are one") from None
        return token
    token = new_token()
    with os.fdopen(place, "w", encoding="ascii") as made:
        made.write(f"{token}\n")
    return token


def is_loopback(name: str) -> bool:
    """Returns whether a host's name or address is this machine's own."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def host_of(request: web.Request) -> str:
    """Returns the name by which a request addresses this server, without the port."""
    try:
        parts = urlsplit(f"//{request.headers.get('Host', '')}")
        parts.port  # noqa: B018  raises where it is none
        name = parts.hostname or ""
    except ValueError:
        name = ""
    if not name or not name.isascii() or not name.isprintable() or len(name) > 255:
        raise web.HTTPBadRequest(text="the request's Host names no host")
    return name


def own_pages_only(loopback: bool) -> Middleware:
    """Returns a middleware that refuses requests made by other sites' pages. With `loopback` the server answers only
    as localhost, so that no name from elsewhere can be pointed at its address."""
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = host_of(request)
        if loopback and not is_loopback(name):
            raise web.HTTPForbidden(
                text=f"this server is not {clean(name)!r}: it answers as localhost unless --host says otherwise")
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "")
        if site in FROM_ELSEWHERE or origin is not None and origin.partition("//")[2] != request.headers["Host"]:
            raise web.HTTPForbidden(text="a page of another site asks; only this server's own pages may")
        return await handler(request)
    return check


def token_only(token: str) -> Middleware:
    """Returns a middleware that answers only requests with the token: as a password, as a bearer token, in the
    address, or in the cookie that the page's address with the token sets."""
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        port = (request.transport.get_extra_info("sockname") or ("", 0))[1] if request.transport else 0
        cookie = f"hakmem-{port}"  # cookies are the same for all ports of a machine
        if not any(hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
                   for given in tokens_in(request, cookie)):
            raise Refused(text="the token is wanted that hakmem serve printed at its start: in the address as "
                               "?token=TOKEN, "
                               "as a password (http://hakmem:TOKEN@HOST:PORT/), or as Authorization: Bearer TOKEN",
                          headers=REALM)
        if request.path == "/" and "token" in request.query and request.method == "GET":
            answer = web.HTTPSeeOther("/")
            answer.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
            return answer
        return await handler(request)
    return check


def tokens_in(request: web.Request, cookie: str) -> list[str]:
    """Returns everything in a request that may be a token."""
    found = [*request.query.getall("token", ())[:1]]
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        found.append(value.strip())
    elif kind.lower() == "basic":
        try:
            found.append(base64.b64decode(value.strip(), validate=True).decode().partition(":")[2])
        except (binascii.Error, UnicodeDecodeError):
            pass
    if cookie in request.cookies:
        found.append(request.cookies[cookie])
    return found


@web.middleware
async def own_user_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """On a Unix socket, answers only the socket's owner and root. The kernel tells who is at the other end."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                        struct.calcsize("3i")) if connection else b""
    if len(credentials) != struct.calcsize("3i") or struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
        raise web.HTTPForbidden(text="this socket is its own user's alone")
    return await handler(request)
