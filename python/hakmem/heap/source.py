"""Where a profile comes from: a file, a running process, or the address of a server."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union
from urllib.parse import parse_qs, unquote, urlsplit

import click

from hakmem.clean import clean
from hakmem.heap.file import FILE_MOST, GZIP, EmptyProfile, ProfileError, parse_profile, read_profile
from hakmem.parameters import FILE, Parameter
from hakmem.processes import ProcessParameter, all_processes, bearers, pid_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hakmem.heap.profile_pb2 import Profile

# How long to wait for a server, besides the seconds for which the server shall observe the process, counted twice.
SECONDS = 60


@dataclass(frozen=True)
class Process:
    """A running process that uses HAKMEM."""

    pid: int

    @property
    def name(self) -> str:
        """The process in words."""
        return f"process {self.pid}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Address:
    """The URL of a server's profile."""

    url: str

    @property
    def name(self) -> str:
        """The address without its token, because a page or a note may be passed on."""
        try:
            parts = urlsplit(self.url)
        except ValueError:  # such as a bracket without its partner
            return clean(self.url.rpartition("@")[2].partition("?")[0])
        query = "&".join(part for part in parts.query.split("&") if not part.startswith("token="))
        return clean(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl())

    def __str__(self) -> str:
        return self.name


AnySource = Union[Path, Process, Address]


def is_profile(path: str) -> bool:
    """Returns whether a file begins as compressed profiles do."""
    try:
        with open(path, "rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError:
        return False


class Source(Parameter[AnySource]):
    """A file's path, a PID, the name of a process, or a URL. A profile's file takes precedence over a process of that
    name; any other file, such as the program itself, does not."""

    name = "source"

    def convert(self, value: str | AnySource, param: click.Parameter | None, ctx: click.Context | None) -> AnySource:
        """Parses the argument."""
        if not isinstance(value, str):
            return value
        if not value.strip():
            self.fail("a file, a PID, the name of a process or a URL is wanted", param, ctx)
        if value.startswith(("http://", "https://")):
            return Address(value)
        if value.isascii() and value.isdigit() and not Path(value).exists():
            return Process(int(value))
        if value and "/" not in value and not is_profile(value) and bearers(value, all_processes()):
            return Process(pid_of(value, served=True))
        path: Path = FILE.convert(value, param, ctx)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offers matching processes; if there are none, leaves files to the shell."""
        from click.shell_completion import CompletionItem

        found = ProcessParameter().shell_complete(ctx, param,
                                                  incomplete) if incomplete and "/" not in incomplete else []
        return found or [CompletionItem(incomplete, type="file")]


def read_source(source: AnySource) -> Profile:
    """Returns the Profile; raises ProfileError if there is none."""
    if isinstance(source, Process):
        return of_process(source)
    if isinstance(source, Address):
        return parse_profile(fetch(source.url), source)
    return read_profile(source)


def read_sources(sources: Iterable[AnySource]) -> tuple[dict[AnySource, Profile], list[AnySource]]:
    """Returns the Profiles, and the sources without samples. Raises EmptyProfile if all are."""
    profiles: dict[AnySource, Profile] = {}
    empty: dict[AnySource, EmptyProfile] = {}
    for source in sources:
        try:
            profiles[source] = read_source(source)
        except EmptyProfile as error:
            empty[source] = error
    if empty and not profiles:
        raise next(iter(empty.values()))
    return profiles, [*empty]


def of_process(source: Process) -> Profile:
    """Returns the Profile of a running process."""
    from hakmem.heap.outside import look, whole
    from hakmem.live import LiveError, ProcessMemory, find, snapshot

    try:
        memory = ProcessMemory(source.pid)
        seen = look(memory, find(memory))
        seen.live = snapshot(memory).totals.live
        profile = whole(seen)
    except LiveError as error:
        raise ProfileError(str(error)) from error
    return parse_profile(profile.SerializeToString(), source)


def request_of(url: str) -> urllib.request.Request:
    """Returns the request for a URL. A user in it (http://hakmem:TOKEN@HOST/) is sent as browsers send it."""
    parts = urlsplit(url)
    who, at, host = parts.netloc.rpartition("@")
    if not at:
        return urllib.request.Request(url)
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(unquote(who).encode()).decode()}")
    return request


def fetch(url: str) -> bytes:
    """Returns what the server has at the URL."""
    try:
        seconds = float(parse_qs(urlsplit(url).query).get("seconds", ["0"])[-1])
    except ValueError:
        seconds = 0  # the server says what is wrong with it
    try:
        with urllib.request.urlopen(request_of(url), timeout=SECONDS + 2 * seconds) as answer:
            data: bytes = answer.read(FILE_MOST + 1)
            return data
    except urllib.error.HTTPError as error:
        text = clean(error.read(4096).decode(errors="replace").strip())
        raise ProfileError(f"{Address(url)}: {error.code} {error.reason}{f': {text}' if text else ''}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProfileError(f"{Address(url)}: cannot be fetched: {getattr(error, 'reason', None) or error}") from error
