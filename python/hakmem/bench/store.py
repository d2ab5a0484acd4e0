"""The files of a run: a journal during the run, from which it can be resumed; then the medians as CSV and the whole
result as compressed JSON."""

from __future__ import annotations

import csv
import io
import json
import lzma
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hakmem.bench import statistics
from hakmem.bench.schedule import Block, State
from hakmem.report import columns

if TYPE_CHECKING:
    from hakmem.records import Entry, Record, Result, Sample

FORMAT = columns.FORMAT
RAW = ".json.xz"
JOURNAL_FORMAT = "hakmem-bench-journal 1"
# Parts of the header that must be equal for a run to be resumed.
MUST_AGREE = ("subject", "conditions", "machine", "rows", "allocators")


# ---- The journal: one JSON object a line ----


class Journal:
    """A file that gets a line for each event at once. Samples count only after the line of their block."""

    def __init__(self, path: Path, header: Record | None = None) -> None:
        """Goes on with the file; with a header, begins it anew."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if header is None:
            cut_torn_line(path)
        self.file = open(path, "w" if header else "a", encoding="utf-8")
        self.write("header" if header else "resumed", header or True)

    def write(self, kind: str, value: Any) -> None:
        """Writes one entry and waits until it is on the disk."""
        self.file.write(json.dumps({kind: value}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self.file.close()


def cut_torn_line(path: Path) -> None:
    """Cuts off an incomplete last line, which a killed writer left."""
    with open(path, "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def read_journal(path: Path) -> tuple[Record, State]:
    """Returns (header, State) of a journal. Leaves out the samples of an unfinished block."""
    lines = path.read_bytes().split(b"\n")[:-1]
    header: Record | None = None
    state = State()
    samples: list[Sample] = []
    calls: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            ((kind, value),) = json.loads(line).items()
            if kind == "header":
                header = value
            elif kind == "sample":
                samples.append(value)
            elif kind == "calls":
                calls.append(value)
            elif kind == "block":
                state.add(Block(value["row"], value["number"]), value["seconds"], samples, calls)
                samples, calls = [], []
            elif kind == "resumed":
                samples, calls = [], []
            else:
                raise ValueError(f"unknown entry {kind}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise click.ClickException(f"{path}, line {number} is damaged ({error}); run without --resume") from error
    if header is None or header.get("format") != JOURNAL_FORMAT:
        raise click.ClickException(f"{path} is not the journal of a run; run without --resume")
    return header, state


def resume(path: Path, now: Record) -> tuple[Record, State]:
    """Returns (header, State) of a run that goes on with its journal. now: the header that it would begin with."""
    then, state = read_journal(path)
    check_header(path, then, json.loads(json.dumps(now)))
    return {**now, **{key: then[key] for key in ("date", "command", "load_before")}}, state


def check_header(path: Path, then: Record, now: Record) -> None:
    """Raises a click error that names the first difference between a run to be resumed and this one."""
    for part in MUST_AGREE:
        for key, before, after in differences(then.get(part), now[part], part):
            raise click.ClickException(f"cannot resume {path}: {key} was {before} and is {after}; "
                                       "run without --resume, or as it was")


def differences(before: Any, after: Any, key: str) -> Iterator[tuple[str, str, str]]:
    """Yields (key, before, after) for each value that differs, as JSON."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(before.get(name), after.get(name), f"{key}.{name}")
    elif before != after:
        yield key, json.dumps(before), json.dumps(after)


# ---- The result ----


def free_stem(folder: Path, date: str, name: str) -> Path:
    """Returns folder/DATE-NAME, with a number appended if a result of that name exists."""
    for number in range(1, 1000):
        stem = f"{date[:10]}-{name}" + (f"-{number}" if number > 1 else "")
        if not any((folder / f"{stem}{suffix}").exists() for suffix in (RAW, ".json", ".json.gz")):
            return folder / stem
    raise click.ClickException(f"{folder} holds 999 results named {date[:10]}-{name}; choose another --name")


def beside(stem: Path, suffix: str) -> Path:
    """Returns the stem's file with this suffix. Path.with_suffix would cut a name at its last point."""
    return stem.with_name(stem.name + suffix)


def to_json(result: Result) -> str:
    """Returns the result as JSON."""
    return json.dumps(result, indent=1) + "\n"


def to_csv(samples: Sequence[Sample]) -> str:
    """Returns every sample, one on each line."""
    columns = list(dict.fromkeys(["row", "allocator", "round", "status", "detail",
                                  *(key for sample in samples for key in sample)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(samples)
    return text.getvalue()


def medians_to_csv(result: Result) -> str:
    """Returns a line for each row and allocator: medians, the subject's ratios to it, and the interval of that of time.
    Lines that begin with # come first and say what was run where. A column that no line has is left out."""
    lines = [f"# {key}: {result[key]}" for key in ("format", "date", "command", "commit", "subject")]
    lines += [f"# machine: {', '.join(f'{key} {value}' for key, value in result['machine'].items())}"]
    lines += [f"# {name}: {' '.join(filter(None, (about.get('version'), about.get('source'), about.get('sha256'))))}"
              for name, about in result["allocators"].items()]
    runs = Counter((sample["row"], sample["allocator"]) for sample in result["samples"])
    table = []
    for row, entries in result["summary"]["rows"].items():
        for name, entry in entries.items():
            line = {"row": row, "allocator": name, "status": entry["status"], "rounds": runs[row, name]}
            line |= {key: short(entry[key]) for key in statistics.MEDIANS if entry.get(key) is not None}
            for figure, ratio in entry.get("ratios", {}).items():
                line[f"{figure}_ratio"] = short(ratio["median"])
                if figure == "time":
                    line |= {"time_low": short(ratio["low"]), "time_high": short(ratio["high"])}
            table.append(line)
    order = ["row", "allocator", "status", "rounds", *statistics.MEDIANS, "time_ratio", "time_low", "time_high",
             *(f"{figure}_ratio" for figure in statistics.FIGURES if figure != "time")]
    text = io.StringIO()
    writer = csv.DictWriter(text, [key for key in order if any(key in line for line in table)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n" + text.getvalue()


def short(value: float) -> str:
    """Returns a figure with four digits, or as the whole number that it is. The measurement supports no more."""
    return str(int(value)) if value == int(value) else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def write_result(result: Result, stem: Path) -> list[Path]:
    """Writes stem.csv (the medians) and stem.json.xz (the whole result), each in one step. Returns both paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    packed = json.dumps(columns.pack(result), separators=(",", ":")) + "\n"
    written = []
    for suffix, content in ((RAW, lzma.compress(packed.encode(), preset=9)),
                            (".csv", medians_to_csv(result).encode())):
        draft = beside(stem, f"{suffix}.new")
        draft.write_bytes(content)
        written.append(draft.replace(beside(stem, suffix)))
    return written
