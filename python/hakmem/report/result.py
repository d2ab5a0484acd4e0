"""Reads a result file of the bench and refuses what is not one, naming the file and the key."""

import functools
import json
from pathlib import Path

import jsonschema

SCHEMA = Path(__file__).with_name("result.schema.json")


class ResultError(ValueError):
    """A result that cannot be shown; the message names the file and the key."""


def load_result(path):
    """The result in the file, checked."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ResultError(f"{path}: not a text file: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        result = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not JSON: {error or 'nested too deeply'}") from error
    check_result(result, path)
    return result


def refuse_constant(name):
    raise ValueError(f"{name} is not a JSON number")


def check_result(result, source="the result"):
    """Raises ResultError unless the result is of the format and its parts name each other."""
    if not isinstance(result, dict):
        raise ResultError(f"{source}: a result is an object, this is {kind(result)}")
    if "format" not in result:
        raise ResultError(f"{source}: format: this key is missing, so this is no result of the bench")
    expected = schema()["properties"]["format"]["const"]
    if result["format"] != expected:
        raise ResultError(f"{source}: format: {shorten(result['format'])} cannot be shown, only {expected!r} can")
    errors = sorted(jsonschema.Draft202012Validator(schema()).iter_errors(result), key=depth)
    for error in errors[:1]:
        raise ResultError(f"{source}: {explain(error)}")
    check_names(result, source)


@functools.cache
def schema():
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def depth(error):
    return len(error.absolute_path)


def explain(error):
    place = dotted(error.absolute_path)
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{join(place, missing)}: this key is missing"
    if error.validator == "type":
        wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        return f"{place}: must be {' or '.join(wanted)}, is {kind(error.instance)}"
    if error.validator == "enum":
        return f"{place}: must be one of {', '.join(error.validator_value)}, is {shorten(error.instance)}"
    if error.validator == "exclusiveMinimum":
        return f"{place}: must be above {error.validator_value}, is {shorten(error.instance)}"
    if error.validator == "minProperties":
        return f"{place}: must not be empty"
    return f"{place}: {shorten(error.message)}"


def dotted(path):
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else join(text, part)
    return text


def join(place, key):
    return f"{place}.{key}" if place else key


def kind(value):
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def shorten(value, length=60):
    text = value if isinstance(value, str) else repr(value)
    return repr(text) if len(text) <= length else repr(text[:length]) + "..."


def check_names(result, source):
    """Every row and allocator that a part speaks of is among the result's rows and allocators."""
    rows, allocators = result["rows"], result["allocators"]

    def known(place, row, allocator=None):
        if row is not None and row not in rows:
            raise ResultError(f"{source}: {place}: row {shorten(row)} is not in rows")
        if allocator is not None and allocator not in allocators:
            raise ResultError(f"{source}: {place}: allocator {shorten(allocator)} is not in allocators")

    known("subject", None, result["subject"])
    for part in ("samples", "calls", "instructions"):
        for number, entry in enumerate(result.get(part) or []):
            known(f"{part}[{number}]", entry.get("row"), entry.get("allocator"))
    summary = result["summary"]
    for row, entries in summary["rows"].items():
        for allocator in entries:
            known("summary.rows", row, allocator)
    for allocator in summary["overall"]:
        known("summary.overall", None, allocator)
    for row, figures in summary["best"].items():
        for figure, best in figures.items():
            known(f"summary.best.{figure}", row, best["allocator"] if best else None)
