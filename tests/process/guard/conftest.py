"""The program with errors at guarded blocks, run once for each mode."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PATH": os.environ["PATH"]}


@dataclass
class Run:
    """A run's result, and its reports from the file."""

    result: blackbox.Result
    path: Path
    reports: list

    @property
    def status(self):
        return self.result.status

    @property
    def said(self):
        return [line.removeprefix("hakmem: guard: ") for line in self.result.stderr.splitlines()
                if line.startswith("hakmem: guard: ")]


@pytest.fixture(scope="session")
def program(compiled, library):
    return compiled(HERE / "errors.c", library, f"-Wl,-rpath,{library.parent}", "-Wl,--build-id", "-Wno-use-after-free",
                    "-Wno-infinite-recursion")


@pytest.fixture(scope="session")
def errors(program, tmp_path_factory):
    """errors(mode, **env) runs a mode with as many blocks guarded as possible, once for each mode and environment."""
    folder, done = tmp_path_factory.mktemp("guard"), {}

    def run(mode, **env):
        key = (mode, tuple(sorted(env.items())))
        if key not in done:
            path = folder / f"{len(done)}.json"
            variables = {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "1", "HAKMEM_GUARD_FILE": str(path), **env}
            result = blackbox.run([program, mode], env=variables)
            lines = path.read_text().splitlines() if path.exists() else []
            done[key] = Run(result, path, [json.loads(line) for line in lines])
        return done[key]

    return run


@pytest.fixture(scope="session")
def hakmem():
    def run(*arguments, env=None):
        return blackbox.run([sys.executable, "-m", "hakmem", *map(str, arguments)], env={**ENVIRONMENT, **(env or {})})

    return run
