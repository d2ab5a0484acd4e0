"""Runs a session from its first block to its result."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from hakmem.bench import calls, machine, statistics
from hakmem.bench.progress import Display
from hakmem.bench.runner import Conditions, run_once
from hakmem.bench.schedule import (
    Plan, State, estimate, failed_too_often, next_block, rotated, time_left, uncertainty, warm_mib)
from hakmem.bench.store import FORMAT, JOURNAL_FORMAT
from hakmem.report.columns import round_result

if TYPE_CHECKING:
    from hakmem.bench.allocators import Allocator
    from hakmem.bench.rows import Row
    from hakmem.records import Entry, Record, Result, Sample


class Writer(Protocol):
    """What keeps the journal of a run."""

    def write(self, kind: str, value: Any) -> None:
        """Writes one entry."""


def run_round(plan: Plan, row: Row, allocators: dict[str, Allocator], conditions: Conditions, state: State,
              number: int, journal: Writer, progress: Display) -> list[Sample]:
    """Runs one round of a row and returns its samples. Leaves out an allocator that has failed too often in the row."""
    samples: list[Sample] = []
    place = plan.rows.index(row.name)
    idle = plan.idle and number == 0 and row.idle
    for name in rotated(plan.allocators, number, place):
        so_far = state.of(row.name)
        if failed_too_often([sample for sample in so_far if sample["allocator"] == name]):
            continue
        progress.step(row.name, name, number)
        so_far += samples
        sample = run_once(row, allocators[name], conditions, warm=warm_mib(plan, so_far), idle=idle,
                          private=number == 0, expected=plan.exit_status)
        sample = {"row": row.name, "allocator": name, "round": number, **sample}
        samples.append(sample)
        journal.write("sample", sample)
    return samples


def run_calls(plan: Plan, row: Row, allocators: dict[str, Allocator], conditions: Conditions, state: State,
              journal: Writer, progress: Display) -> list[Entry]:
    """Counts a row's system calls on every allocator that completed it, except for the subject's copy."""
    entries = []
    for name in plan.allocators if row.counts_calls else ():
        own = state.of(row.name, name)
        if name == plan.copy or not own or own[0]["status"] != "ok":
            continue
        progress.step(row.name, name, None)
        entry = calls.count_calls(row, allocators[name], conditions, plan.exit_status)
        entries.append(entry)
        journal.write("calls", entry)
    return entries


def run_session(plan: Plan, rows: dict[str, Row], allocators: dict[str, Allocator], conditions: Conditions,
                state: State, journal: Writer, progress: Display | None = None) -> None:
    """Runs wanted blocks while one fits into the time. rows: {name: Row}. Adds results to `state`."""
    progress = progress or Display()
    before = state.elapsed()
    began = time.monotonic()
    known: dict[tuple[str, int], float] = {}

    def uncertain(row: str) -> float:
        key = (row, state.rounds(row))
        if key not in known:
            known[key] = uncertainty(plan, state, row)
        return known[key]

    while True:
        elapsed = before + time.monotonic() - began
        block = next_block(plan, state, elapsed, uncertain)
        if block is None:
            return
        progress.block(block, estimate(state, block), time_left(plan, state, elapsed, uncertain))
        started = time.monotonic()
        row = rows[block.row]
        samples: list[Sample] = []
        entries: list[Entry] = []
        if block.number is None:
            entries = run_calls(plan, row, allocators, conditions, state, journal, progress)
        else:
            samples = run_round(plan, row, allocators, conditions, state, block.number, journal, progress)
        seconds = time.monotonic() - started
        state.add(block, seconds, samples, entries)
        journal.write("block", {"row": block.row, "number": block.number, "seconds": seconds})
        progress.done(block, seconds)


def make_header(plan: Plan, rows: Record, allocators: dict[str, Allocator], options: Record, conditions: Record,
                command: str, date: str) -> Record:
    """Returns what is known before the first block. A resumed run must have the same `conditions`."""
    return {
        "format": JOURNAL_FORMAT,
        "date": date,
        "command": command,
        "commit": machine.describe_commit(),
        "machine": machine.describe_machine(),
        "subject": plan.subject,
        "options": options,
        "conditions": conditions,
        "load_before": os.getloadavg()[0],
        "allocators": {name: allocator.describe() for name, allocator in allocators.items()},
        "rows": rows,
    }


def make_result(header: Record, plan: Plan, state: State) -> Result:
    """Returns the content of the result file. Rows for which there was no time are only named, in not_run."""
    rows = {name: row for name, row in header["rows"].items() if state.rounds(name)}
    result = {"format": FORMAT, **{key: header[key] for key in ("date", "command", "commit")}}
    result["machine"] = {**header["machine"], "load_before": header["load_before"], "load_after": os.getloadavg()[0]}
    result.update(subject=plan.subject, options={**header["options"], **header["conditions"]},
                  allocators=header["allocators"], rows=rows, samples=state.samples, calls=state.calls,
                  instructions=[])
    result["not_run"] = {name: "there was no time" for name in header["rows"] if name not in rows}
    result["summary"] = statistics.summarize(state.samples, rows, list(header["allocators"]), plan.subject, plan.copy)
    return round_result(result)
