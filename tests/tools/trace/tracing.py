"""What the tests of `hakmem trace` share: recording, reading, replaying."""

import json
import os
import re
import sys
from pathlib import Path

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
REPLAY = BUILD / "bin/hakmem-replay"
SOURCES = Path(__file__).parent


def trace(*arguments, **more):
    """`hakmem trace ARGUMENTS`."""
    env = {"HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "200"}
    return blackbox.run([sys.executable, "-m", "hakmem", "trace", *arguments], env=env, **more)


def record(file, *command, options=(), status=0, **more):
    result = trace("record", "-o", file, *options, "--", *command, **more)
    assert result.status == status, result.report()
    return result


def info(file):
    result = trace("info", "--json", file)
    assert result.status == 0, result.report()
    return json.loads(result.stdout)


def replay(file, *options, preload=None, timeout=30):
    """Runs one replay. Returns the pairs that it prints."""
    result = blackbox.run([REPLAY, *options, file], preload=preload, timeout=timeout)
    assert result.status == 0, result.report()
    pairs = {}
    for line in re.findall(r"^(?:RESULT|REPLAY) (.*)$", result.stdout, re.MULTILINE):
        pairs.update(pair.split("=") for pair in line.split())
    return pairs
