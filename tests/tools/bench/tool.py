"""Runs the tools for the tests: on this build, with only the peers that a test adds, and with small rows."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import blackbox
import click.testing

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
LAUNCHER = BUILD / "bin/bench_measure"
PACKAGE = blackbox.REPOSITORY / "python"
sys.path.insert(0, str(PACKAGE))

QUICKLY = ("--warm", "1", "--no-calls", "--no-idle")
TWO = ("--allocators", "glibc,hakmem")


def environment(folder):
    """The variables of a run. Its build folder has this build's programs, and inputs of its own: only one run may use
    them at a time."""
    own = folder / "build"
    own.mkdir(exist_ok=True)
    for name in ("bin", "lib"):
        if not (own / name).exists():
            (own / name).symlink_to(BUILD / name)
    return {**blackbox.environment(), "HAKMEM_BUILD_DIR": str(own), "HAKMEM_PEERS_DIR": str(folder / "peers"),
            "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}


def start(folder, *arguments):
    """The tool as a process in its own session, in a folder, because it makes locks and files by fixed names."""
    return subprocess.Popen([sys.executable, "-m", "hakmem", *map(str, arguments)], env=environment(folder), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True)


def run(folder, *arguments, timeout=blackbox.HANG):
    process = start(folder, *arguments)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return blackbox.Result(process.returncode, out, err)


def refused(folder, *arguments):
    """Runs a command that is refused before it measures, in this process. Returns its status and message."""
    from hakmem.cli import main

    changed = {name: value for name, value in environment(folder).items() if os.environ.get(name) != value}
    done = click.testing.CliRunner().invoke(main, [*map(str, arguments)], env={**changed, "COLUMNS": "300"})
    assert done.exit_code != 0 and isinstance(done.exception, SystemExit), done.output
    status, said = done.exit_code, done.stderr
    del done
    gc.collect()  # the exception holds the run's lock
    return status, said


def bench(folder, *arguments):
    """hakmem bench with small rows. Its files go to the folder."""
    return run(folder, "bench", *QUICKLY, "--out", folder, *arguments)


def only_result(folder):
    from hakmem.report.result import read_json

    (path,) = folder.glob("*.json.xz")
    return read_json(path)


def measure(tmp_path, *command, options=(), preload="", warm=0):
    """(status, {key: number}) of the launcher."""
    output = tmp_path / "measured"
    done = subprocess.run([LAUNCHER, *map(str, options), output, str(warm), str(preload), *map(str, command)],
                          env=blackbox.environment(), capture_output=True, text=True, timeout=blackbox.HANG,
                          check=False)
    pairs = dict(pair.split("=") for pair in output.read_text().split()) if output.exists() else {}
    return done, {key: float(value) for key, value in pairs.items()}
