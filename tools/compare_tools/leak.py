"""A web application with a leak: its cache keeps every record that clients send, and nothing removes one.

Prints its port, answers until GET /quit, and ends as any program does. POST /records takes a list of records as JSON.
"""

import json
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

CACHE = {}


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def parse(environ):
    return json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))


def remember(records):
    for record in records:
        CACHE[record["id"]] = record


def summarise(records):
    """Takes memory that the next request frees."""
    return "\n".join(f"{record['id']}: {record['text'][:200]}" for record in records)


def handle(environ):
    records = parse(environ)
    remember(records)
    return summarise(records)


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/quit":
        application.ended = True
        return [b""]
    return [handle(environ).encode()]


def main():
    application.ended = False
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        while not application.ended:
            server.handle_request()


main()
sys.stdout.flush()
