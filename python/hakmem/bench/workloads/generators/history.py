"""The history of a source tree, as git fast-import reads it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from hakmem.bench.workloads.generators.text import vocabulary

START = 1_700_000_000


def make_history(seed: int, commits: int, files: int) -> Iterator[bytes]:
    """Yields the stream's bytes. Each commit changes lines of a few files; some commits add or rename a file."""
    generator = random.Random(seed)
    words = vocabulary(generator, 1500)

    def line() -> str:
        return "    " * generator.randrange(4) + " ".join(generator.choices(words, k=generator.randint(1, 9)))

    tree = {f"src/{generator.choice(words)}/{number}.c": [line() for _ in range(generator.randint(40, 400))]
            for number in range(files)}
    dirty = list(tree)
    for number in range(commits):
        renamed = []
        if number:
            dirty = generator.sample(sorted(tree), min(len(tree), generator.randint(1, 4)))
            for path in dirty:
                change(generator, tree[path], line)
            if generator.random() < 0.1:
                old = dirty.pop()
                new = f"src/{generator.choice(words)}/{number}-{files}.c"
                tree[new] = tree.pop(old)
                renamed.append((old, new))
                dirty.append(new)
        message = " ".join(generator.choices(words, k=generator.randint(3, 30)))
        yield f"commit refs/heads/main\nmark :{number + 1}\n".encode()
        yield f"committer {words[number % 9]} <{words[number % 9]}@example.org> {START + 600 * number} +0000\n".encode()
        yield data(message)
        for old, new in renamed:
            yield f"R {old} {new}\n".encode()
        for path in dirty:
            yield f"M 100644 inline {path}\n".encode()
            yield data("\n".join(tree[path]) + "\n")
    yield b"done\n"


def data(text: str) -> bytes:
    """Returns a block of data for fast-import."""
    content = text.encode()
    return b"data %d\n%s\n" % (len(content), content)


def change(generator: random.Random, lines: list[str], make_line: Callable[[], str]) -> None:
    """Replaces, adds and removes runs of lines."""
    for _ in range(generator.randint(1, 5)):
        start = generator.randrange(len(lines))
        fresh = [make_line() for _ in range(generator.randint(0, 6))]
        lines[start : start + generator.randint(0, 4)] = fresh
    if len(lines) < 20:
        lines.extend(make_line() for _ in range(20))
