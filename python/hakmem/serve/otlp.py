"""Pushes heap profiles to an OpenTelemetry collector: OTLP over HTTP, in JSON.

What is in use is told as it is, and what was allocated as the difference to the push before. An address has the name
of its function, and its file has its build-id."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from hakmem.heap.outside import Look, Restarted, difference, look, whole
from hakmem.heap.symbolize import symbolize
from hakmem.live.descriptor import find
from hakmem.live.memory import LiveError, ProcessMemory, start_time
from hakmem.live.sites import ProfileOff
from hakmem.serve.target import Target
from hakmem.version import version

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Profile, ValueType
    from hakmem.serve.watch import Watches

PATH = "/v1development/profiles"
# The sample types that are pushed: of what is in use now, and of what changed.
NOW, CHANGED = ("inuse_objects", "inuse_space"), ("alloc_objects", "alloc_space")
# Seconds that a collector may take to answer, and for which a process is left out that could not be looked at.
ANSWER_SECONDS, PENALTY = 30, 600


class Tables:
    """The tables that all profiles of a push share. Entry 0 of each stands for nothing."""

    def __init__(self) -> None:
        self.places: dict[str, dict[Hashable, int]] = {}
        self.rows: dict[str, list[Any]] = {}
        for name in ("mapping", "location", "function", "link", "attribute", "stack"):
            self.rows[name], self.places[name] = [{}], {}
        self.rows["string"], self.places["string"] = [""], {"": 0}

    def place(self, table: str, key: Hashable, row: Any) -> int:
        """Returns the place of a row, which it adds if needed."""
        places = self.places[table]
        if key not in places:
            places[key] = len(self.rows[table])
            self.rows[table].append(row)
        return places[key]

    def text(self, text: str) -> int:
        """Returns the place of a string."""
        return self.place("string", text, text)

    def attribute(self, key: str, value: str | int, unit: str = "") -> int:
        """Returns the place of an attribute."""
        row = {"keyStrindex": self.text(key), "value": attribute_value(value), "unitStrindex": self.text(unit)}
        return self.place("attribute", (key, value, unit), row)

    def add(self, profile: Profile, names: tuple[str, ...]) -> list[dict[str, Any]]:
        """Returns the profiles of these sample types, whose stacks it adds."""
        texts = profile.string_table
        functions = {one.id: self.place("function", one.SerializeToString(), {
            "nameStrindex": self.text(texts[one.name]), "systemNameStrindex": self.text(texts[one.system_name]),
            "filenameStrindex": self.text(texts[one.filename]), "startLine": str(one.start_line)})
            for one in profile.function}
        mappings = {one.id: self.place("mapping", (one.memory_start, one.memory_limit, texts[one.filename]), {
            "memoryStart": str(one.memory_start), "memoryLimit": str(one.memory_limit),
            "fileOffset": str(one.file_offset), "filenameStrindex": self.text(texts[one.filename]),
            "attributeIndices": [self.attribute("process.executable.build_id.gnu", texts[one.build_id])]
            if one.build_id else []}) for one in profile.mapping}
        locations = {one.id: self.place("location", one.id, {
            "address": str(one.address), "mappingIndex": mappings.get(one.mapping_id, 0),
            "lines": [{"functionIndex": functions[line.function_id], "line": str(line.line)} for line in one.line]})
            for one in profile.location}
        stacks = [self.place("stack", stack, {"locationIndices": list(stack)}) for stack in (
            tuple(locations[each] for each in sample.location_id) for sample in profile.sample)]
        made = []
        for index, kind in enumerate(profile.sample_type):
            if texts[kind.type] not in names:
                continue
            samples = [{"stackIndex": stack, "values": [str(sample.value[index])], "attributeIndices": [
                self.attribute(texts[label.key], texts[label.str] if label.str else label.num, texts[label.num_unit])
                for label in sample.label]} for stack, sample in zip(stacks, profile.sample) if sample.value[index]]
            made.append({
                "profileId": secrets.token_hex(16), "timeUnixNano": str(profile.time_nanos),
                "durationNano": str(profile.duration_nanos), "samples": samples, "period": str(profile.period),
                "sampleType": self.kind(profile, kind), "periodType": self.kind(profile, profile.period_type)})
        return made

    def kind(self, profile: Profile, kind: ValueType) -> dict[str, int]:
        """Returns the type of a value."""
        texts = profile.string_table
        return {"typeStrindex": self.text(texts[kind.type]), "unitStrindex": self.text(texts[kind.unit])}


def attribute_value(value: str | int) -> dict[str, str]:
    """Returns a value as OTLP's JSON has it."""
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def request_of(profiles: Sequence[tuple[Profile, tuple[str, ...]]], resource: dict[str, str | int]) -> bytes:
    """Returns the request that exports profiles, of each those sample types."""
    tables = Tables()
    made = [one for profile, names in profiles for one in tables.add(profile, names)]
    attributes = [{"key": key, "value": attribute_value(value)} for key, value in resource.items() if value != ""]
    return json.dumps({
        "resourceProfiles": [{"resource": {"attributes": attributes}, "scopeProfiles": [
            {"scope": {"name": "hakmem", "version": version()}, "profiles": made}]}],
        "dictionary": {f"{name}Table": rows for name, rows in tables.rows.items()}}, separators=(",", ":")).encode()


class Changes:
    """Makes the requests of processes, in a worker. Keeps the look at each for the next difference."""

    def __init__(self) -> None:
        self.before: dict[int, Look] = {}

    def request(self, pid: int, begun: int, resource: dict[str, str | int]) -> bytes:
        """Returns the request for a process; nothing if it takes no profile."""
        memory = ProcessMemory(pid)
        if start_time(pid, gone=True) != begun:
            self.before.pop(pid, None)
            return b""
        try:
            seen = look(memory, find(memory))
        except ProfileOff:
            self.before.pop(pid, None)
            return b""
        before, self.before[pid] = self.before.get(pid), seen
        profiles = [(whole(seen), NOW)]
        try:
            if before:
                profiles.append((difference(before, seen), CHANGED))
        except Restarted:
            pass
        for profile, _ in profiles:
            symbolize(profile)
        return request_of(profiles, resource)


class Pusher:
    """Pushes the profiles of all served processes again and again."""

    def __init__(self, url: str, every: float, watches: Watches) -> None:
        self.url, self.every, self.watches = url, every, watches
        self.target = Target(0, watches.deadline)
        self.left: dict[int, float] = {}

    async def run(self) -> None:
        """Pushes until it is cancelled."""
        from aiohttp import ClientSession, ClientTimeout

        async with ClientSession(timeout=ClientTimeout(total=ANSWER_SECONDS), headers=headers()) as session:
            try:
                while True:
                    begun = time.monotonic()
                    for resource in self.watches.resources():
                        await self.push(session, resource)
                    await asyncio.sleep(max(self.every - (time.monotonic() - begun), 0))
            finally:
                await self.target.end()

    async def push(self, session: Any, resource: dict[str, str | int]) -> None:
        """Pushes the profile of a process, if it takes one."""
        from aiohttp import ClientError

        pid, begun = int(resource["process.pid"]), resource.pop("begun")
        if self.left.get(pid, 0) > time.monotonic():
            return
        resource["host.name"] = socket.gethostname()
        try:
            data = await self.target.ask("otlp", pid=pid, begun=begun, resource=resource)
        except LiveError as error:
            self.left[pid] = time.monotonic() + PENALTY
            logging.error("no profile of process %s is pushed for %d seconds: %s", pid, PENALTY, error)
            return
        if not data:
            return
        try:
            async with session.post(self.url, data=data, headers={"Content-Type": "application/json"}) as answer:
                text = (await answer.content.read(4096)).decode(errors="replace")
                if answer.status >= 300:
                    logging.error("%s refuses a profile: status %d, %.200s", self.url, answer.status, text)
                elif "rejectedProfiles" in text:
                    logging.error("%s rejects profiles: %.200s", self.url, text)
        except (ClientError, asyncio.TimeoutError, OSError) as error:
            logging.error("%s takes no profile: %s", self.url, error or type(error).__name__)


def headers() -> dict[str, str]:
    """Returns the headers that OTEL_EXPORTER_OTLP_HEADERS sets, as OpenTelemetry's own programs read it."""
    pairs = (pair.partition("=") for pair in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}


def address_of(url: str) -> str:
    """Returns the address to push to. url: a collector's, with or without the path. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address such as http://127.0.0.1:4318 is wanted")
    return url if parts.path.strip("/") else url.rstrip("/") + PATH
