"""Replays a trace on several allocators in turn. The replay program measures itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem import paths
from hakmem.bench import allocators, statistics
from hakmem.bench.rows import Row
from hakmem.bench.runner import TAIL, Conditions, environment, judge, launch, parse_pairs
from hakmem.bench.schedule import rotated
from hakmem.trace.header import read_header

if TYPE_CHECKING:
    from hakmem.records import Figures, Result, Sample

SUBJECT = "hakmem"
FIRST_WARM_MIB = 256


def choose_allocators(names: Sequence[str],
                      additions: Iterable[str]) -> tuple[dict[str, allocators.Allocator], str | None]:
    """Returns {name: Allocator} of those asked for, or of all there are, and why there are no peers, if so."""
    found, trouble = allocators.known()
    added = allocators.add_libraries(found, additions)
    allocators.check_names(names, found, trouble)
    chosen = {name: found[name] for name in found if not names or name in names or name in added}
    return chosen, None if names else trouble


def run_once(row: Row, allocator: allocators.Allocator, number: int, calls: int, warm: int) -> Sample:
    """Returns one replay as a sample. Peak RSS excludes the replay's own tables."""
    env = environment(row, allocator, Conditions(files=Path()))
    whole, output, tail, unloaded = launch(list(row.command), env=env, preload=allocator.library, warm=warm,
                                           limit=row.time_limit_s)
    sample = {"row": row.name, "allocator": allocator.name, "round": number}
    status, detail = judge(row, whole, tail, unloaded, row.time_limit_s, 0)
    if status != "ok":
        return {**sample, "status": status, "detail": detail, "wall_s": whole["wall_s"]}
    pairs: Figures = {}
    for line in re.findall(r"^(?:RESULT|REPLAY) (.*)$", output, re.MULTILINE):
        pairs.update(parse_pairs(line))
    wanted = ("ops", "seconds", "ns_per_op", "user_s", "sys_s", "soft_faults", "rss_peak_kib", "own_kib", "waits")
    missing = [key for key in wanted if key not in pairs]
    if missing:
        return {**sample, "status": "failed", "detail": f"no {missing[0]} in its output: {output.strip()[-TAIL:]}"}
    if pairs["ops"] != calls:
        return {**sample, "status": "failed", "detail": f"{pairs['ops']} calls replayed, {calls} recorded"}
    return {**sample, "status": "ok", "time_s": pairs["seconds"], "cpu_s": pairs["user_s"] + pairs["sys_s"],
            "wall_s": whole["wall_s"], "peak_rss_kib": max(0, pairs["rss_peak_kib"] - pairs["own_kib"]),
            **{key: pairs[key] for key in ("ops", "ns_per_op", "soft_faults", "waits")}}


def replay_trace(path: Path, chosen: dict[str, allocators.Allocator], rounds: int, options: Sequence[str],
                 limit: float) -> Result:
    """Replays the trace `rounds` times on each allocator. Returns a result like that of `hakmem bench`."""
    header = read_header(path)
    program = paths.program("hakmem-replay")
    if not program.is_file():
        raise click.ClickException(paths.absent(program))
    row = Row(name=path.name, group="driver", threads=header.threads, about=f"replay of {path}", figure="seconds",
              command=(str(program), *options, str(path.absolute())), verbatim=True, time_limit_s=limit)
    samples: list[Sample] = []
    warm = FIRST_WARM_MIB
    for number in range(rounds):
        for name in rotated(list(chosen), number, 0):
            sample = run_once(row, chosen[name], number, header.calls, warm)
            samples.append(sample)
            warm = max(warm, sample.get("peak_rss_kib", 0) * 5 // 4 >> 10)
    subject = SUBJECT if SUBJECT in chosen else next(iter(chosen))
    summary = statistics.summarize(samples, {row.name: row.describe()}, list(chosen), subject, None)
    return {"file": str(path), "options": options, "rounds": rounds, "calls": header.calls, "threads": header.threads,
            "subject": subject, "allocators": {name: each.describe() for name, each in chosen.items()},
            "samples": samples, "entries": summary["rows"][row.name]}
