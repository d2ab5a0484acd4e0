"""Fixtures: the program that loses memory in known ways, and runs of `hakmem leaks` on it."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
HAKMEM = [sys.executable, "-m", "hakmem"]


@dataclass(frozen=True)
class Looked:
    """A run of `hakmem leaks`, and its JSON reports, one for each process."""

    result: blackbox.Result
    reports: list

    def site(self, function, report=0):
        """The site with this function among its frames."""
        (found,) = (site for site in self.reports[report]["sites"]
                    if any(frame["name"].partition("(")[0] == function for frame in site["frames"]))
        return found


def hakmem(*words, env=None, **more):
    return blackbox.run([*HAKMEM, *words], env={"HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300", **(env or {})},
                        **more)


@pytest.fixture(scope="session")
def program(compiled):
    return compiled(Path(__file__).with_name("leaks.cpp"), "-pthread", "-O1", "-g")


@pytest.fixture(scope="session")
def leaks(program, tmp_path_factory):
    """leaks(words, *options) runs hakmem leaks on the program with these words, once a session for the same words."""
    known = {}

    def look(words, *options, env=None):
        key = (tuple(words), tuple(map(str, options)))
        if key not in known:
            file = tmp_path_factory.mktemp("leaks") / "leaks.json"
            result = hakmem("leaks", "--json", file, *options, "--", program, *words, env=env)
            known[key] = Looked(result, json.loads(file.read_text()) if file.exists() else [])
        return known[key]

    return look
