"""Records a program under libhakmem-trace.so, and makes its raw files into traces."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from hakmem import paths
from hakmem.paths import recorder_library
from hakmem.trace.header import MAGIC, TraceError, read_header


def check_tools() -> None:
    """Raises a click error if the recorder is missing or cannot be preloaded."""
    for path in (recorder_library(), paths.program("hakmem-trace-finish")):
        if not path.is_file():
            raise click.ClickException(paths.absent(path))
    if any(character.isspace() or character == ":" for character in str(recorder_library())):
        raise click.ClickException(f"LD_PRELOAD cannot name {recorder_library()}: there is a blank or a colon in it")


def check_output(output: Path) -> None:
    """Raises a usage error if the output is a file other than a trace: only a trace may be overwritten."""
    if output.is_dir():
        raise click.UsageError(f"-o {output} is a folder")
    try:
        with open(output, "rb") as file:
            start = file.read(len(MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise click.ClickException(f"-o {output}: {error.strerror}") from error
    if start not in (b"", MAGIC):
        raise click.ClickException(f"-o {output} is there already and is no trace; remove it or choose another name")


def run_recorded(command: Sequence[str], raw: Path, children: bool) -> int:
    """Runs the program with the recorder before its allocator. Returns its exit status, negative for a signal."""
    env = {**os.environ, "HKTRACE_FILE": str(raw), "HKTRACE_CHILDREN": "1" if children else "0"}
    before = os.environ.get("LD_PRELOAD")
    env["LD_PRELOAD"] = f"{recorder_library()}:{before}" if before else str(recorder_library())
    # The program handles an interrupt. What it recorded until then is kept.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    try:
        return subprocess.Popen(command, env=env, preexec_fn=restore).wait()
    except OSError as error:
        raise click.ClickException(f"cannot run {command[0]}: {error.strerror}") from error
    finally:
        restore()


def finish(raw: Path, output: Path, text: dict[str, Any]) -> None:
    """Makes the trace beside the raw file and moves it to its name."""
    made = raw.with_name(f"made-{raw.name}")
    done = subprocess.run([paths.program("hakmem-trace-finish"), raw, made, json.dumps(text)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise TraceError(done.stderr.strip().removeprefix("hakmem trace: ") or
                         f"hakmem-trace-finish ended with {done.returncode}")
    shutil.move(made, output)


def say_recorded(output: Path) -> None:
    """Tells what a trace holds."""
    header = read_header(output)
    line = f"hakmem trace: {output}: {header.calls:,} calls in {header.threads:,} threads"
    if header.stopped:
        line += f"; truncated: recording stopped early: {os.strerror(header.stopped)}"
    click.echo(line, err=True)


def describe_end(status: int) -> dict[str, Any]:
    """Returns how the program ended, for the trace's text."""
    return {"status": status} if status >= 0 else {"signal": signal.Signals(-status).name}


def record_program(command: Sequence[str], output: Path | None, children: bool) -> int:
    """Records a run of the program. Returns its exit status as a shell shows it."""
    check_tools()
    output = Path(output or f"{Path(command[0]).name}.trace").absolute()
    check_output(output)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error
    about = {"command": shlex.join(command), "date": datetime.now().astimezone().isoformat(timespec="seconds")}
    status = run_recorded(command, folder / "raw", children)
    failed = keep = False
    for raw in sorted(folder.glob("raw*")):
        suffix = raw.name.removeprefix("raw")
        end = describe_end(status) if not suffix else {"child": int(suffix[1:].partition("-")[0])}
        target = output.with_name(output.name + suffix)
        try:
            finish(raw, target, {**about, **end})
            say_recorded(target)
        except (TraceError, OSError) as error:
            failed = True
            kept = f"; what was recorded is kept in {raw}" if raw.stat().st_size else ""
            keep = keep or bool(kept)
            click.echo(f"hakmem trace: no trace {target}: {error}{kept}", err=True)
    recorded = (folder / "raw").exists()
    if not keep:
        shutil.rmtree(folder)
    if not recorded:
        raise click.ClickException(f"{command[0]} was not recorded: a program that is linked statically or runs with "
                                   "other rights than its caller's loads no LD_PRELOAD (or see above)")
    if failed:
        return 1
    if status < 0:
        click.echo(f"hakmem trace: {command[0]} was ended by {signal.Signals(-status).name}", err=True)
        return 128 - status
    return status
