"""Makes text whose words are distributed as in a language: a few are frequent, most are rare."""

from __future__ import annotations

import itertools
import random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MODULUS = 1_000_003


def vocabulary(generator: random.Random, count: int) -> list[str]:
    """Returns that many different words of 2 to 12 letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(generator.choices(LETTERS, k=generator.randint(2, 12)))] = None
    return list(words)


def text_lines(seed: int, lines: int, *, words: int, longest: int) -> list[str]:
    """Returns lines of 1 to `longest` words. The word of rank r is drawn with a weight of 1 / r."""
    generator = random.Random(seed)
    known = vocabulary(generator, words)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, words + 1)))
    return [" ".join(generator.choices(known, cum_weights=weights, k=generator.randint(1, longest)))
            for _ in range(lines)]


def text_answers(lines: list[str]) -> dict[str, int]:
    """Returns what words.lua and words.pl find in the lines, computed by other means.

    order: the sum of rank x count over the words, sorted by falling count and rising word. places: the sum, over the
    words, of their last line x the number of lines they stand on. turned: the sum of characters after every word was
    reversed and given a capital, weighted by their place in the line."""
    counts: dict[str, int] = {}
    places: dict[str, set[int]] = {}
    turned = 0
    for number, line in enumerate(lines, 1):
        words = line.split(" ")
        for word in words:
            counts[word] = counts.get(word, 0) + 1
            places.setdefault(word, set()).add(number)
        for place, character in enumerate(" ".join(word[::-1].capitalize() for word in words), 1):
            turned += place * ord(character)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {
        "lines": len(lines),
        "words": sum(counts.values()),
        "distinct": len(counts),
        "order": sum(rank * counts[word] for rank, word in enumerate(ranked, 1)) % MODULUS,
        "places": sum(max(found) * len(found) for found in places.values()) % MODULUS,
        "turned": turned % MODULUS,
    }
