"""A web application with a leak: its cache keeps every record that clients send, and nothing removes one.

Prints its port, answers until GET /quit, and ends as any program does. POST /records takes a list of records as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Records = list[dict[str, Any]]
CACHE: dict[int, dict[str, Any]] = {}
ended = False


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def parse(environ: WSGIEnvironment) -> Records:
    records: Records = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    return records


def remember(records: Records) -> None:
    for record in records:
        CACHE[record["id"]] = record


def summarise(records: Records) -> str:
    """Takes memory that the next request frees."""
    return "\n".join(f"{record['id']}: {record['text'][:200]}" for record in records)


def handle(environ: WSGIEnvironment) -> str:
    records = parse(environ)
    remember(records)
    return summarise(records)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    global ended
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/quit":
        ended = True
        return [b""]
    return [handle(environ).encode()]


def main() -> None:
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        while not ended:
            server.handle_request()


main()
sys.stdout.flush()
