"""Runs hakmem serve, and asks it."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import blackbox
from blackbox import wait_for as until
from inprocess import hakmem

COMMAND = [sys.executable, "-m", "hakmem", "serve"]
ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
SECONDS = blackbox.HANG

__all__ = ["COMMAND", "ENVIRONMENT", "Server", "looks", "refused_command", "serving", "until"]


class Server:
    """The server: its address without the token, and requests to it, which have the token."""

    def __init__(self, process, url, token):
        self.process, self.url, self.token = process, url, token

    @property
    def page(self):
        """The address for a browser."""
        return f"{self.url}?token={self.token}"

    @property
    def pprof(self):
        """The address for pprof and `hakmem heap`, with the token as a password."""
        return self.url.replace("://", f"://hakmem:{self.token}@")

    def get(self, path, method="GET", headers=None, token=True, data=None):
        """(status, headers, body as bytes)."""
        known = {"Authorization": f"Bearer {self.token}"} if token else {}
        request = urllib.request.Request(self.url + path.lstrip("/"), method=method,
                                         headers={**known, **(headers or {})}, data=data)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def json(self, path):
        status, headers, body = self.get(path)
        assert status == 200 and headers.get_content_type() == "application/json", (status, body)
        return json.loads(body)

    def refused(self, path, status, **more):
        """The text of an error, which is JSON."""
        seen, headers, body = self.get(path, **more)
        assert seen == status and headers.get_content_type() == "application/json", (seen, body)
        answer = json.loads(body)
        assert list(answer) == ["error"]
        return answer["error"]


@contextmanager
def serving(*arguments, command=COMMAND):
    """Runs `hakmem serve` on a free port."""
    process = subprocess.Popen([*command, *map(str, arguments), "--port", "0"], env=blackbox.environment(ENVIRONMENT),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        url, _, token = process.stdout.readline().strip().partition("?token=")
        assert url.startswith("http://"), process.stderr.read()
        yield Server(process, url, token)
    finally:
        process.kill()
        process.communicate()


def looks(browser):
    """The number of the last reading that the page has drawn."""
    return int(browser.execute_script("return document.documentElement.dataset.looks || 0"))


def refused_command(*words, status=1):
    """Checks that the command cannot serve. Returns its message. Status 2 means wrong use."""
    done = hakmem("serve", *words)
    done.says(status)
    return done.stderr
