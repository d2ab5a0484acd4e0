"""Tells by its cgroup which systemd unit, container and pod a process belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

CONTAINER = re.compile(r"(?:^|[-_:])([0-9a-f]{64})(?:\.scope)?$")
POD = re.compile(r"^(?:.*-)?pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})(?:\.slice)?$")
UNIT = re.compile(r"^.+\.(?:service|scope|socket)$")
# Units that are numbered anew at each login or start would make labels without end.
NUMBERED = re.compile(r"^(session|run|app)-.*(?=\.(?:scope|service)$)")
SHORT = 12  # characters of a container's ID, as docker ps prints it
TEXT_MOST = 128  # characters of a label


@dataclass(frozen=True)
class Place:
    """Where a process runs; a part that it has not is empty."""

    path: str = "/"
    unit: str = ""
    container: str = ""
    pod: str = ""


def place_of(text: str) -> Place:
    """Returns the Place that the text of /proc/PID/cgroup says."""
    paths = {}
    for line in text.split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/"):
            paths["" if number == "0" else controllers] = path
    # Version 1 has a tree for each controller. All of a container's have its ID; systemd's own has the unit.
    path = max((paths.get(name, "") for name in ("name=systemd", "", "memory")), key=len) or "/"
    unit = container = pod = ""
    for part in path.split("/"):
        if found := CONTAINER.search(part):
            container, unit = found[1][:SHORT], ""
        elif found := POD.match(part):
            pod = found[1].replace("_", "-")
        elif UNIT.match(part):
            unit = NUMBERED.sub(r"\1", part)[:TEXT_MOST]
    return Place(path, unit, container, pod)


def within(path: str, tree: str) -> bool:
    """Returns whether a cgroup is `tree` or lies below it."""
    return tree == "/" or path == tree or path.startswith(f"{tree}/")
