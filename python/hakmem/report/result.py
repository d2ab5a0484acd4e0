"""Reads a result file of the bench. Refuses anything else, with the file and the key that is wrong."""

from __future__ import annotations

import functools
import json
import lzma
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hakmem.extras import extra
from hakmem.report import columns

if TYPE_CHECKING:
    from jsonschema import ValidationError

    from hakmem.records import Result

# The first bytes of compressed files, and a limit of their content.
XZ, GZIP = b"\xfd7zXZ\0", b"\x1f\x8b"
UNPACKED_MOST = 1 << 30
# Most bytes of a file. A device such as /dev/zero has no end.
FILE_MOST = 256 << 20

SCHEMA = Path(__file__).with_name("result.schema.json")


class ResultError(ValueError):
    """A result that cannot be shown. The message names the file and the key."""


def load_result(path: str | Path) -> Result:
    """Returns the checked result of a file, which xz or gzip may have compressed."""
    result: Result = read_json(path)
    check_result(result, path)
    return result


def read_json(path: str | Path) -> Any:
    """Returns the content of a file, unchecked. A packed result is unpacked (hakmem.report.columns)."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(FILE_MOST + 1)
        if len(packed) > FILE_MOST:
            raise ResultError(f"{path}: is larger than {FILE_MOST >> 20} MiB")
        text = unpack(packed, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ResultError(f"{path}: not a text file: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not JSON: {error or 'nested too deeply'}") from error
    try:
        return columns.unpack(content)
    except columns.PackedError as error:
        raise ResultError(f"{path}: {error}") from error


def unpack(content: bytes, path: str | Path) -> bytes:
    """Returns the content, uncompressed."""
    if not content.startswith((XZ, GZIP)):
        return content
    unpacker = lzma.LZMADecompressor() if content.startswith(XZ) else zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(content, UNPACKED_MOST)
    except (lzma.LZMAError, zlib.error) as error:
        raise ResultError(f"{path}: damaged: {error}") from error
    if not unpacker.eof:
        raise ResultError(f"{path}: damaged: it ends too soon, or holds more than {UNPACKED_MOST >> 20} MiB")
    return unpacked


def stem_of(path: str | Path) -> str:
    """Returns the name of a result without its endings. Other points in a name are no endings."""
    name = Path(path).name
    for suffix in (".xz", ".gz", ".json"):
        name = name.removesuffix(suffix)
    return name


def refuse_constant(name: str) -> NoReturn:
    """Raises ValueError for constants such as NaN, which JSON lacks."""
    raise ValueError(f"{name} is not a JSON number")


def check_result(result: Any, source: object = "the result") -> None:
    """Raises ResultError unless the result has the format and its parts fit together."""
    if not isinstance(result, dict):
        raise ResultError(f"{source}: a result is an object, this is {kind(result)}")
    if "format" not in result:
        raise ResultError(f"{source}: format: this key is missing, so this is no result of the bench")
    expected = schema()["properties"]["format"]["const"]
    if result["format"] != expected:
        raise ResultError(f"{source}: format: {shorten(result['format'])} cannot be shown, only {expected!r} "
                          f"and {columns.PACKED_FORMAT!r} can")
    with extra("report", "reading a result"):
        import jsonschema
    errors = sorted(jsonschema.Draft202012Validator(schema()).iter_errors(result), key=depth)
    for error in errors[:1]:
        raise ResultError(f"{source}: {explain(error)}")
    check_names(result, source)


@functools.cache
def schema() -> dict[str, Any]:
    """Returns the schema of results."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def depth(error: ValidationError) -> int:
    """Returns how deep an error lies."""
    return len(error.absolute_path)


def explain(error: ValidationError) -> str:
    """Returns an error of the schema's check in words."""
    place, instance = dotted(error.absolute_path), error.instance
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    words = [str(word) for word in wanted]
    if error.validator == "required":
        missing = next(key for key in words if not isinstance(instance, dict) or key not in instance)
        return f"{join(place, missing)}: this key is missing"
    if error.validator == "type":
        return f"{place}: must be {' or '.join(words)}, is {kind(instance)}"
    if error.validator == "enum":
        return f"{place}: must be one of {', '.join(words)}, is {shorten(instance)}"
    if error.validator == "exclusiveMinimum":
        return f"{place}: must be above {words[0]}, is {shorten(instance)}"
    if error.validator == "minProperties":
        return f"{place}: must not be empty"
    return f"{place}: {shorten(error.message)}"


def dotted(path: Iterable[str | int]) -> str:
    """Returns a path into the result as a text."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else join(text, part)
    return text


def join(place: str, key: str) -> str:
    """Returns the place of a key."""
    return f"{place}.{key}" if place else key


def kind(value: object) -> str:
    """Returns the JSON type of a value."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def shorten(value: object, length: int = 60) -> str:
    """Returns a value as a short text."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text) if len(text) <= length else repr(text[:length]) + "..."


def check_names(result: Result, source: object) -> None:
    """Raises ResultError if a part names a row or allocator that the result does not list."""
    rows, allocators = result["rows"], result["allocators"]

    def known(place: str, row: str | None, allocator: str | None = None) -> None:
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
