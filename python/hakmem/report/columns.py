"""The form of a result in its file, which is smaller: a list of entries is a table of columns.

`pack` makes it and `unpack` reads it. A table is an object {key: the values of all entries}. Null stands for an entry
without the key, and [] for an entry whose value is null. The key of a value that lies in an object of the entry is its
path, such as `ratios.time.median`. The rows of the summary are one table, too, whose columns `row` and `allocator` say
what each entry is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hakmem.records import Entry, Record, Result

PACKED_FORMAT, FORMAT = "hakmem-bench 2", "hakmem-bench 1"
LISTS = ("samples", "calls", "instructions")
# Significant digits of a figure of one run, and of one that is computed from several. No measurement supports more.
SAMPLE_DIGITS, SUMMARY_DIGITS = 4, 5
# Objects within each other in an entry, at most.
DEEPEST = 8


class PackedError(ValueError):
    """A packed result with a part that is no table. The message names the part."""


def rounded(value: Any, digits: int) -> Any:
    """Returns a value of JSON with its broken numbers rounded. Whole numbers stay as they are."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, list) else value


def round_result(result: Result) -> Result:
    """Returns the result with the digits that its file keeps."""
    samples = rounded(result["samples"], SAMPLE_DIGITS)
    return {**result, "samples": samples, "summary": rounded(result["summary"], SUMMARY_DIGITS)}


def pack(result: Result) -> Record:
    """Returns the rounded result with tables in place of its lists."""
    packed = round_result(result)
    packed["format"] = PACKED_FORMAT
    for part in LISTS:
        if part in packed:
            packed[part] = to_table(packed[part] or [])
    rows = packed["summary"]["rows"]
    entries = ({"row": row, "allocator": name, **entry} for row, of in rows.items() for name, entry in of.items())
    packed["summary"] = {**packed["summary"], "rows": to_table(entries)}
    return packed


def unpack(content: Any) -> Any:
    """Returns the result of what pack made, and anything else as it is. Raises PackedError for a part that is no
    table."""
    if not isinstance(content, dict) or content.get("format") != PACKED_FORMAT:
        return content
    result = {**content, "format": FORMAT}
    for part in LISTS:
        if part in result:
            result[part] = list(from_table(result[part], part))
    summary = result.get("summary")
    if not isinstance(summary, dict) or "rows" not in summary:
        raise PackedError("summary.rows: this key is missing")
    rows: dict[str, dict[str, Entry]] = {}
    for entry in from_table(summary["rows"], "summary.rows"):
        row, name = entry.pop("row", None), entry.pop("allocator", None)
        if not isinstance(row, str) or not isinstance(name, str):
            raise PackedError("summary.rows: an entry has no row or no allocator")
        rows.setdefault(row, {})[name] = entry
    result["summary"] = {**summary, "rows": rows}
    return result


def to_table(entries: Iterable[Entry]) -> dict[str, list[Any]]:
    """Returns the columns of the entries, in the order in which the keys come first."""
    flat = [dict(values_of(entry)) for entry in entries]
    keys = dict.fromkeys(key for entry in flat for key in entry)
    return {key: [entry.get(key) for entry in flat] for key in keys}


def values_of(entry: Entry, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (path, value) of an entry's values."""
    for key, value in entry.items():
        if "." in key or isinstance(value, list):
            raise ValueError(f"a table has no place for {key!r}: a point in the key, or an array")
        if isinstance(value, dict) and value:
            yield from values_of(value, f"{prefix}{key}.")
        else:
            yield prefix + key, [] if value is None else value


def from_table(table: Any, place: str) -> Iterator[Entry]:
    """Yields the entries of a table."""
    if not isinstance(table, dict) or not all(isinstance(column, list) for column in table.values()):
        raise PackedError(f"{place}: must be an object of arrays")
    if len({len(column) for column in table.values()}) > 1:
        raise PackedError(f"{place}: the columns have different lengths")
    paths = [key.split(".") for key in table]
    if any(len(path) > DEEPEST for path in paths):
        raise PackedError(f"{place}: nested too deeply")
    for values in zip(*table.values()):
        entry: Entry = {}
        for path, value in zip(paths, values):
            if value is not None:
                put(entry, path, None if value == [] else value, place)
        yield entry


def put(entry: Entry, path: list[str], value: Any, place: str) -> None:
    """Sets the value at a path in the entry."""
    for key in path[:-1]:
        entry = entry.setdefault(key, {})
        if not isinstance(entry, dict):
            raise PackedError(f"{place}: {'.'.join(path)} lies in a value that is no object")
    entry[path[-1]] = value
