"""What a run leaves: a journal while it goes on, from which it can be resumed, then a result as JSON and CSV."""

import csv
import io
import json
import os
from pathlib import Path

import click

from hakmem.bench.schedule import Block, State

FORMAT = "hakmem-bench 1"
JOURNAL_FORMAT = "hakmem-bench-journal 1"
# What has to be the same for a run to be resumed, as its header says it.
MUST_AGREE = ("subject", "conditions", "machine", "rows", "allocators")


# ---- The journal: one JSON object a line ----


class Journal:
    """A file that gets a line as soon as there is something to say. Samples count when their block's line follows."""

    def __init__(self, path, header=None):
        """Goes on with the file; with a header, begins it anew."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if header is None:
            cut_torn_line(path)
        self.file = open(path, "w" if header else "a", encoding="utf-8")
        self.write("header" if header else "resumed", header or True)

    def write(self, kind, value):
        self.file.write(json.dumps({kind: value}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self):
        self.file.close()


def cut_torn_line(path):
    """Drops what a writer that was killed left behind the last whole line."""
    with open(path, "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def read_journal(path):
    """(header, State) of a journal. A block that was not finished is left out, with its samples."""
    lines = path.read_bytes().split(b"\n")[:-1]
    header, state, samples, calls = None, State(), [], []
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


def check_header(path, then, now):
    """A click error that names the first thing in which a run to be resumed differs from this one."""
    for part in MUST_AGREE:
        for key, before, after in differences(then.get(part), now[part], part):
            raise click.ClickException(f"cannot resume {path}: {key} was {before} and is {after}; "
                                       "run without --resume, or as it was")


def differences(before, after, key):
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(before.get(name), after.get(name), f"{key}.{name}")
    elif before != after:
        yield key, json.dumps(before), json.dumps(after)


# ---- The result ----


def free_stem(folder, date, name):
    """folder/DATE-NAME, with a number behind it when there is a result of that name."""
    for number in range(1, 1000):
        stem = f"{date[:10]}-{name}" + (f"-{number}" if number > 1 else "")
        if not (folder / f"{stem}.json").exists():
            return folder / stem
    raise click.ClickException(f"{folder} holds 999 results named {date[:10]}-{name}; choose another --name")


def beside(stem, suffix):
    """The stem's file of a suffix; with_suffix would take a point in a name for one."""
    return stem.with_name(stem.name + suffix)


def to_json(result):
    return json.dumps(result, indent=1) + "\n"


def to_csv(samples):
    columns = list(dict.fromkeys(["row", "allocator", "round", "status", "detail",
                                  *(key for sample in samples for key in sample)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(samples)
    return text.getvalue()


def write_result(result, stem):
    """Writes stem.json and stem.csv, each in one step."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".csv", to_csv(result["samples"])), (".json", to_json(result))):
        draft = beside(stem, f"{suffix}.new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(beside(stem, suffix))
    return Path(beside(stem, ".json"))
