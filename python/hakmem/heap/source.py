"""Where a profile comes from: a file, a running process, or the address of a server."""

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click

from hakmem.heap.file import ProfileError, parse_profile, read_profile

FILE = click.Path(path_type=Path, dir_okay=False)
# A server is waited for so long, and as long again as it is to watch the process.
SECONDS = 60


@dataclass(frozen=True)
class Process:
    """A running process on HAKMEM."""

    pid: int

    @property
    def name(self):
        return f"process {self.pid}"

    def __str__(self):
        return self.name


@dataclass(frozen=True)
class Address:
    """Where a server has a profile."""

    url: str

    @property
    def name(self):
        return self.url

    def __str__(self):
        return self.url


class Source(click.ParamType):
    """A file's path, a PID, or a URL. A file whose name is a number comes before the process."""

    name = "source"

    def convert(self, value, param, ctx):
        if not isinstance(value, str):
            return value
        if value.startswith(("http://", "https://")):
            return Address(value)
        if value.isascii() and value.isdigit() and not Path(value).exists():
            return Process(int(value))
        return FILE.convert(value, param, ctx)


def read_source(source):
    """The Profile; a ProfileError says why there is none."""
    if isinstance(source, Process):
        return of_process(source)
    if isinstance(source, Address):
        return parse_profile(fetch(source.url), source)
    return read_profile(source)


def of_process(source):
    from hakmem.heap.outside import look, whole
    from hakmem.live import LiveError, ProcessMemory, find

    try:
        memory = ProcessMemory(source.pid)
        profile = whole(look(memory, find(memory)))
    except LiveError as error:
        raise ProfileError(str(error)) from error
    return parse_profile(profile.SerializeToString(), source)


def fetch(url):
    """What the server has there."""
    try:
        seconds = float(parse_qs(urlsplit(url).query).get("seconds", ["0"])[-1])
    except ValueError:
        seconds = 0  # the server says what is wrong with it
    try:
        with urllib.request.urlopen(url, timeout=SECONDS + 2 * seconds) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        text = error.read(4096).decode(errors="replace").strip()
        raise ProfileError(f"{url}: {error.code} {error.reason}{f': {text}' if text else ''}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProfileError(f"{url}: cannot be fetched: {getattr(error, 'reason', None) or error}") from error
