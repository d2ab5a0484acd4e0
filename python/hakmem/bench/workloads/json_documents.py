"""json_documents.py FOLDER ROUNDS: parses the folder's JSON documents, changes them, and writes them, ROUNDS times.

All documents are held at once. Ends with status 1 when what it found or wrote is not what expected.json says.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any


def tally(value: object) -> tuple[int, int]:
    """Returns the sum of the integers in a document, and the length of its strings."""
    integers = characters = 0
    left = [value]
    while left:
        value = left.pop()
        if type(value) is dict:
            left.extend(value.keys())
            left.extend(value.values())
        elif type(value) is list:
            left.extend(value)
        elif type(value) is int:
            integers += value
        elif type(value) is str:
            characters += len(value)
    return integers, characters


def one_round(lines: list[str]) -> dict[str, Any]:
    """Parses, changes and writes all documents. Returns the answers."""
    documents = [json.loads(line) for line in lines]
    tallies = [tally(document) for document in documents]
    digest = hashlib.sha256()
    for document in documents:
        document["items"].append(document["items"].pop(0))
        document["seen"] = document["id"] * 3 + 1
        digest.update(json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
    return {
        "documents": len(documents),
        "integers": sum(integers for integers, _ in tallies),
        "characters": sum(characters for _, characters in tallies),
        "digest": digest.hexdigest(),
    }


def main(folder: str, rounds: str) -> None:
    """Runs the rounds and checks their answers."""
    with open(f"{folder}/documents.jsonl", encoding="utf-8") as file:
        lines = file.readlines()
    with open(f"{folder}/expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    for _ in range(int(rounds)):
        found = one_round(lines)
        if found != expected:
            sys.exit(f"json_documents.py: wrong answer: {found}, expected {expected}")
    print(found["digest"])


main(*sys.argv[1:])
