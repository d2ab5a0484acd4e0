"""Runs a row once on an allocator, under the launcher, and returns the outcome as a sample."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hakmem import paths
from hakmem.phrases import signal_name

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.rows import Row
    from hakmem.records import Figures, Sample

# Variables that steer an allocator or the program. A run gets only those that its row and the options set.
PRIVATE_VARIABLE = re.compile(
    r"^(HAKMEM_|BENCH_|LD_|MALLOC_|GLIBC_TUNABLES|MIMALLOC_|JEMALLOC_|TCMALLOC_|RPMALLOC_|SNMALLOC_|TBB_|PYTHON)")
TOOL_VARIABLE = re.compile(r"^(HAKMEM_BUILD_DIR|HAKMEM_PEERS_DIR|LD_PRELOAD|BENCH_)")
NOT_PRELOADED = re.compile(rb"ERROR: ld\.so: object '([^']*)' from LD_PRELOAD cannot be preloaded[^\n]*")
IDLE_MS = 1200
TAIL = 400
# Figures that only some drivers report.
OWN_KEYS = ("thread_held_bytes", "thread_later_bytes", "huge_percent", "fill_ms", "full_kib", "live_kib", "freed_kib",
            "held_kib")


class RunError(RuntimeError):
    """The launcher could not do its part. It says nothing about an allocator."""


@dataclass(frozen=True)
class Conditions:
    """What is the same for every run.

    files: the folder of inputs. scale: the factor on the amount of work. env: variables of the programs.
    own_environment: keep the user's variables, for a user's program. show_output: the program writes to our output;
    otherwise its output is read for the RESULT line and dropped."""

    files: Path
    scale: float = 1.0
    env: tuple[tuple[str, str], ...] = ()
    own_environment: bool = False
    show_output: bool = False
    input: str | None = None


def environment(row: Row, allocator: Allocator, conditions: Conditions) -> dict[str, str]:
    """Returns the environment of a run."""
    dropped = TOOL_VARIABLE if conditions.own_environment else PRIVATE_VARIABLE
    env = {name: value for name, value in os.environ.items() if not dropped.match(name)}
    if not conditions.own_environment:
        env["LC_ALL"] = "C"
    env.update(row.setting)
    env.update(conditions.env)
    env.update(allocator.setting)
    return env


def parse_pairs(line: str) -> Figures:
    """Returns the key=value pairs of a line, with numbers as int or float and anything else as text."""
    pairs: Figures = {}
    for word in line.split():
        key, separator, value = word.partition("=")
        if separator:
            pairs[key] = int(value) if re.fullmatch(r"-?\d+", value) else as_float(value)
    return pairs


def as_float(text: str) -> float | str:
    """Returns the text as a float, or unchanged if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return text


def read_tail(file: IO[bytes], length: int = TAIL) -> str:
    """Returns the end of an open file as stripped text."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - length))
    return file.read().decode(errors="replace").strip()


def launch(words: Sequence[str], *, env: dict[str, str], preload: str | None = "", variable: str = "LD_PRELOAD",
           warm: int = 0, limit: float = 0.0, stdin: str | None = None, show_output: bool = False,
           private: bool = False) -> tuple[Figures, str, str, str | None]:
    """Runs a command under the launcher.

    Returns the launcher's pairs, standard output, the tail of standard error, and what the dynamic linker said if it
    could not preload a library. private: the launcher also reads private dirty memory. Output goes to files, because
    a pipe would need a reader during the run."""
    with tempfile.TemporaryDirectory(prefix="hakmem-run-") as folder, tempfile.TemporaryFile() as out, \
            tempfile.TemporaryFile() as err, open(stdin or os.devnull, "rb") as source:
        report = Path(folder, "report")
        command = [str(paths.program("bench_measure")), "-t", f"{limit:.3f}", "-v", variable,
                   *(["-p"] if private else []), str(report), str(warm), preload or "", *words]
        try:
            process = subprocess.Popen(command, env=env, stdin=source, stdout=None if show_output else out, stderr=err,
                                       start_new_session=True)
        except OSError as error:
            raise RunError(f"the launcher {command[0]} cannot be run: {error.strerror} (./hakmem build)") from error
        try:
            process.wait()
        except BaseException:
            process.terminate()  # The launcher then ends the program and all its descendants.
            process.wait()
            raise
        text = report.read_text() if report.exists() else ""
        if not text:
            raise RunError(f"{words[0]}: {read_tail(err) or f'the launcher ended with status {process.returncode}'}")
        err.seek(0)
        unloaded = NOT_PRELOADED.search(err.read(1 << 16))
        out.seek(0)
        output = out.read(1 << 22).decode(errors="replace")
        if show_output:
            err.seek(0)
            shutil.copyfileobj(err, sys.stderr.buffer)
            sys.stderr.flush()
        tail = read_tail(err)
        return parse_pairs(text), output, tail, unloaded[0].decode(errors="replace") if unloaded else None


def judge(row: Row, whole: Figures, tail: str, unloaded: str | None, limit: float,
          expected: int) -> tuple[str, str | None]:
    """Returns (status, detail) of a run. expected: the exit status of a good run."""
    if unloaded:
        return "refused", unloaded
    if whole["timed_out"]:
        return "timeout", f"no end after {limit:g} s"
    if whole["signal"]:
        return "crashed", signal_name(whole["signal"])
    status = whole["status"]
    # A shell ends with 128 + N if its child died by signal N.
    if row.preload == "child" and 128 < status < 128 + signal.NSIG:
        return "crashed", signal_name(status - 128)
    if status != expected:
        return "failed", f"exit status {status}" + (f": {tail}" if tail else "")
    return "ok", None


def whole_figures(whole: Figures) -> Figures:
    """Returns the launcher's figures, which cover the whole process tree."""
    figures = {key: whole[key] for key in ("wall_s", "user_s", "sys_s", "peak_rss_kib", "soft_faults", "hard_faults")}
    for key in ("mean_rss_kib", "end_rss_kib"):
        if whole.get(key, -1) >= 0:
            figures[key] = whole[key]
    if whole.get("private_kib", -1) >= 0:
        figures["peak_private_kib"] = whole["private_kib"]
    return figures


def own_figures(row: Row, own: Figures) -> Figures:
    """Returns the figures that a program reports about its timed part. They replace the launcher's."""
    cpu = own["user_s"] + own["sys_s"]
    figures = {key: own[key] for key in ("ops", "ns_per_op", "soft_faults", "hard_faults", *OWN_KEYS) if key in own}
    if row.figure == "rate":
        millions = own["ops"] / 1e6
        figures.update(time_s=own["seconds"] / millions, cpu_s=cpu / millions)
    else:
        figures.update(time_s=own["seconds"], cpu_s=cpu)
    if own.get("rss_idle_kib", -1) >= 0:
        figures["idle_rss_kib"] = own["rss_idle_kib"]
    if own.get("private_idle_kib", -1) >= 0:
        figures["idle_private_kib"] = own["private_idle_kib"]
    if row.preload == "child":
        # The launcher's memory figures include the script and its helpers.
        figures["peak_rss_kib"] = own["rss_peak_kib"]
        figures["mean_rss_kib"], figures["end_rss_kib"] = own.get("rss_mean_kib"), None
        figures["peak_private_kib"] = own.get("private_peak_kib")
    return figures


def run_once(row: Row, allocator: Allocator, conditions: Conditions, *, warm: int, idle: bool = False,
             private: bool = False, expected: int = 0) -> Sample:
    """Returns one run as a sample, without the number of its round.

    idle: the program also waits after freeing everything and reports what it holds. The average over time is then
    left out, because it would include the wait. private: the launcher reads private dirty memory."""
    env = environment(row, allocator, conditions)
    if idle:
        env["BENCH_IDLE_MS"] = str(IDLE_MS)
    whole, output, tail, unloaded = launch(
        row.argv(conditions.files, conditions.scale), env=env, preload=allocator.library,
        variable="BENCH_PRELOAD" if row.preload == "child" else "LD_PRELOAD", warm=warm, limit=row.time_limit_s,
        stdin=conditions.input, show_output=conditions.show_output, private=private)
    sample: Sample = {"row": row.name, "allocator": allocator.name}
    status, detail = judge(row, whole, tail, unloaded, row.time_limit_s, expected)
    figures = whole_figures(whole)
    if status == "ok" and row.figure != "wall":
        line = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
        try:
            figures.update(own_figures(row, parse_pairs(line[1] if line else "")))
        except (KeyError, TypeError, ZeroDivisionError) as error:
            status, detail = "failed", f"no usable RESULT line ({error!r}): {output.strip()[-TAIL:]}"
    elif status == "ok":
        figures.update(time_s=whole["wall_s"], cpu_s=whole["user_s"] + whole["sys_s"])
    if status != "ok":
        return {**sample, "status": status, "detail": detail, "exit": whole["status"], "wall_s": whole["wall_s"]}
    if idle:
        figures["mean_rss_kib"] = figures["end_rss_kib"] = None
    return {**sample, "status": status, "exit": whole["status"],
            **{key: value for key, value in figures.items() if value is not None}}
