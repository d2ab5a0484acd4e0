"""One run of a row on an allocator: through the launcher, and what came of it as a sample."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hakmem import paths

# What steers an allocator or a program under it; a run has what its row and the options give it, and no more.
PRIVATE_VARIABLE = re.compile(
    r"^(HAKMEM_|BENCH_|LD_|MALLOC_|GLIBC_TUNABLES|MIMALLOC_|JEMALLOC_|TCMALLOC_|RPMALLOC_|SNMALLOC_|TBB_|PYTHON)")
TOOL_VARIABLE = re.compile(r"^(HAKMEM_BUILD_DIR|HAKMEM_PEERS_DIR|LD_PRELOAD|BENCH_)")
NOT_PRELOADED = re.compile(rb"ERROR: ld\.so: object '([^']*)' from LD_PRELOAD cannot be preloaded[^\n]*")
IDLE_MS = 1200
TAIL = 400
CANNOT_RUN = 125


class RunError(RuntimeError):
    """The launcher could not do its part; says nothing of an allocator."""


@dataclass(frozen=True)
class Conditions:
    """What is the same for every run: the folder of inputs, the factor on the work, the variables.

    env: variables of the programs. own_environment: the user's variables stay, as for a program of the user's.
    show_output: the program's output goes where ours goes; else it is read for its RESULT line and dropped."""

    files: Path
    scale: float = 1.0
    env: tuple = ()
    own_environment: bool = False
    show_output: bool = False
    input: str | None = None


def environment(row, allocator, conditions):
    dropped = TOOL_VARIABLE if conditions.own_environment else PRIVATE_VARIABLE
    env = {name: value for name, value in os.environ.items() if not dropped.match(name)}
    if not conditions.own_environment:
        env["LC_ALL"] = "C"
    env.update(row.setting)
    env.update(conditions.env)
    env.update(allocator.setting)
    return env


def parse_pairs(line):
    """The key=value pairs of a line; numbers as int or float, anything else as text."""
    pairs = {}
    for word in line.split():
        key, separator, value = word.partition("=")
        if separator:
            pairs[key] = int(value) if re.fullmatch(r"-?\d+", value) else as_float(value)
    return pairs


def as_float(text):
    try:
        return float(text)
    except ValueError:
        return text


def read_tail(file, length=TAIL):
    """The end of an open file, as a text without its last newline."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - length))
    return file.read().decode(errors="replace").strip()


def launch(words, *, env, preload="", variable="LD_PRELOAD", warm=0, limit=0.0, stdin=None, show_output=False):
    """Runs a command under the launcher. Returns its pairs, standard output, the tail of standard error, and what the
    dynamic linker said of a library that it could not preload, if any. Files take what the program writes: a pipe would
    need a reader beside it."""
    with tempfile.TemporaryDirectory(prefix="hakmem-run-") as folder, tempfile.TemporaryFile() as out, \
            tempfile.TemporaryFile() as err, open(stdin or os.devnull, "rb") as source:
        report = Path(folder, "report")
        command = [str(paths.program("bench_measure")), "-t", f"{limit:.3f}", "-v", variable, str(report), str(warm),
                   preload or "", *words]
        try:
            process = subprocess.Popen(command, env=env, stdin=source, stdout=None if show_output else out, stderr=err,
                                       start_new_session=True)
        except OSError as error:
            raise RunError(f"the launcher {command[0]} cannot be run: {error.strerror} (./hakmem build)") from error
        try:
            process.wait()
        except BaseException:
            process.terminate()  # It ends the program and all its descendants.
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


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def judge(row, whole, tail, unloaded, limit, expected):
    """(status, detail) of a run. expected: the exit status it should have."""
    if unloaded:
        return "refused", unloaded
    if whole["timed_out"]:
        return "timeout", f"no end after {limit:g} s"
    if whole["signal"]:
        return "crashed", signal_name(whole["signal"])
    status = whole["status"]
    # A script ends so when what it started was ended by a signal.
    if row.preload == "child" and 128 < status < 128 + signal.NSIG:
        return "crashed", signal_name(status - 128)
    if status != expected:
        return "failed", f"exit status {status}" + (f": {tail}" if tail else "")
    return "ok", None


def whole_figures(whole):
    """What the launcher tells of the whole tree."""
    figures = {key: whole[key] for key in ("wall_s", "user_s", "sys_s", "peak_rss_kib", "soft_faults", "hard_faults")}
    if whole["mean_rss_kib"] >= 0:
        figures["mean_rss_kib"] = whole["mean_rss_kib"]
    return figures


def own_figures(row, own):
    """What a program says of its timed part, which goes before the launcher's figures."""
    cpu = own["user_s"] + own["sys_s"]
    figures = {key: own[key] for key in ("ops", "ns_per_op", "soft_faults", "hard_faults") if key in own}
    if row.figure == "rate":
        millions = own["ops"] / 1e6
        figures.update(time_s=own["seconds"] / millions, cpu_s=cpu / millions)
    else:
        figures.update(time_s=own["seconds"], cpu_s=cpu)
    if own.get("rss_idle_kib", -1) >= 0:
        figures["idle_rss_kib"] = own["rss_idle_kib"]
    if row.preload == "child":
        # The launcher's memory figures are of the script and its helpers, too.
        figures["peak_rss_kib"] = own["rss_peak_kib"]
        figures["mean_rss_kib"] = own.get("rss_mean_kib")
    return figures


def run_once(row, allocator, conditions, *, warm, idle=False, expected=0):
    """One run as a sample without its round. idle: the program also waits when all is freed and tells what it holds;
    the average over time is then left out, because the waiting is in it."""
    env = environment(row, allocator, conditions)
    if idle:
        env["BENCH_IDLE_MS"] = str(IDLE_MS)
    whole, output, tail, unloaded = launch(
        row.argv(conditions.files, conditions.scale), env=env, preload=allocator.library,
        variable="BENCH_PRELOAD" if row.preload == "child" else "LD_PRELOAD", warm=warm, limit=row.time_limit_s,
        stdin=conditions.input, show_output=conditions.show_output)
    sample = {"row": row.name, "allocator": allocator.name}
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
        figures["mean_rss_kib"] = None
    return {**sample, "status": status, "exit": whole["status"],
            **{key: value for key, value in figures.items() if value is not None}}
