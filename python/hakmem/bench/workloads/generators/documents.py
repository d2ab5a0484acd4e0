"""JSON documents: orders of a shop, nested a few levels deep."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from hakmem.bench.workloads.generators.text import vocabulary


def make_documents(seed: int, count: int) -> list[dict[str, Any]]:
    """Returns the documents as Python objects. Fractions are quarters, so that their text is exact."""
    generator = random.Random(seed)
    words = vocabulary(generator, 600) + ["naïve", "Straße", "東京", "ключ", 'quo"te', "line\nbreak", "tab\t", "🙂"]

    def sentence(least: int, most: int) -> str:
        return " ".join(generator.choices(words, k=generator.randint(least, most)))

    def item(depth: int) -> dict[str, Any]:
        made = {
            "name": sentence(1, 4),
            "count": generator.randint(1, 5000),
            "price": generator.randint(1, 40000) / 4,
            "tags": [generator.choice(words) for _ in range(generator.randint(0, 6))],
            "stock": generator.choice([True, False, None]),
        }
        if depth > 0 and generator.random() < 0.4:
            made["parts"] = [item(depth - 1) for _ in range(generator.randint(1, 4))]
        return made

    return [
        {
            "id": number,
            "customer": {"name": sentence(2, 3),
                         "address": {"street": sentence(1, 3), "zip": generator.randint(1, 99999)}},
            "note": sentence(0, 30),
            "items": [item(2) for _ in range(generator.randint(1, 5))],
            "counters": {generator.choice(words): generator.randint(-10**12, 10**12) for _ in range(8)},
        }
        for number in range(count)
    ]


def tally(value: Any) -> tuple[int, int]:
    """Returns the sum of the integers in a document, and the length of its strings (keys too)."""
    if isinstance(value, str):
        return 0, len(value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return 0, 0
    if isinstance(value, int):
        return value, 0
    below = [tally(part) for part in (value.values() if isinstance(value, dict) else value)]
    keys = sum(map(len, value)) if isinstance(value, dict) else 0
    return sum(part[0] for part in below), keys + sum(part[1] for part in below)


def document_answers(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what json_documents.py finds in the documents, and the digest of what it writes after its changes."""
    tallies = [tally(document) for document in documents]
    digest = hashlib.sha256()
    for document in documents:
        changed = {**document, "items": [*document["items"][1:], document["items"][0]], "seen": document["id"] * 3 + 1}
        digest.update(json.dumps(changed, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
    return {
        "documents": len(documents),
        "integers": sum(integers for integers, _ in tallies),
        "characters": sum(characters for _, characters in tallies),
        "digest": digest.hexdigest(),
    }
