"""A program text in a small language, for mix.py to tokenize, with the counts of its tokens."""

from __future__ import annotations

import random
from typing import Any

from hakmem.bench.workloads.generators.text import vocabulary


def make_script(seed: int, lines: int) -> tuple[str, dict[str, Any]]:
    """Returns the text, its tokens of each kind, the sum of its whole numbers, and its names' uses."""
    generator = random.Random(seed)
    names = [word for word in vocabulary(generator, 300) if word not in ("let", "call")]
    counts = dict.fromkeys(("keyword", "name", "number", "string", "operator", "comment"), 0)
    uses: dict[str, int] = {}
    total = 0

    def use(kind: str, token: str) -> str:
        counts[kind] += 1
        if kind == "name":
            uses[token] = uses.get(token, 0) + 1
        return token

    def operand() -> str:
        nonlocal total
        kind = generator.choice(("name", "name", "number", "string"))
        if kind == "name":
            return use("name", generator.choice(names))
        if kind == "string":
            return use("string", f'"{" ".join(generator.choices(names, k=generator.randint(0, 5)))}"')
        value = generator.randint(0, 10**generator.randint(1, 9))
        total += value
        return use("number", str(value))

    written = []
    for number in range(lines):
        parts = [use("keyword", generator.choice(("let", "call"))), use("name", generator.choice(names))]
        parts += [use("operator", "="), operand()]
        for _ in range(generator.randint(0, 4)):
            parts += [use("operator", generator.choice(("+", "-", "*", "/", "<=", "=="))), operand()]
        if generator.random() < 0.2:
            parts.append(use("comment", f"# line {number}"))
        written.append(" ".join(parts) + "\n")
    most = max(uses.values())
    return "".join(written), {
        "tokens": counts,
        "total": total,
        "names": len(uses),
        "most": [most, min(name for name in uses if uses[name] == most)],
    }
