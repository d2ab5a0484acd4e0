"""JSON in pieces, for values of which not all should be in memory at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping


def json_pieces(data: Mapping[str, object]) -> Iterator[str]:
    """Yields the text of an object. A member that is an iterator becomes an array, an item a piece."""
    start = "{"
    for name, value in data.items():
        yield f"{start}\n {json.dumps(name)}: "
        start = ","
        if isinstance(value, Iterator):
            opened = "["
            for item in value:
                yield f"{opened}\n  {indented(item, 2)}"
                opened = ","
            yield "[]" if opened == "[" else "\n ]"
        else:
            yield indented(value, 1)
    yield "{}\n" if start == "{" else "\n}\n"


def indented(value: object, depth: int) -> str:
    """Returns a value's text, but for its first line indented."""
    return json.dumps(value, indent=1).replace("\n", "\n" + " " * depth)
