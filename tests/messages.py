"""The fields of HAKMEM's messages about misuse, which tests assert, so that anyone may improve the words."""

import re
import signal
from dataclasses import dataclass

import blackbox

# Each kind's words, from the source.
KINDS = {words: kind for kind, words in re.findall(r'case MISUSE_(\w+): return "(.+)";',
                                                   (blackbox.REPOSITORY / "src/pool/misuse.c").read_text())}
FOREIGN, NO_BLOCK, FREED, SIZE = "FOREIGN", "NO_BLOCK", "FREED", "SIZE"
assert set(KINDS.values()) == {FOREIGN, NO_BLOCK, FREED, SIZE}, KINDS

LINE = re.compile(r"hakmem: ([^():]+)\((0x[0-9a-f]+)\): (.+)")
NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")
ALLOCATOR = re.compile(r"operator (?:new|delete)(?:\[\])?|\b(?:malloc|free)\b")


def numbers(text):
    """All numbers and addresses in the text."""
    return tuple(int(number, 0) for number in NUMBER.findall(text))


@dataclass(frozen=True)
class Misuse:
    """A message. kind: one of KINDS, or None for what only a hardened library finds. numbers: those in the description.
    allocators: the functions that the description names. owner: the size class, the heap and the thread, or ()."""

    function: str
    pointer: str
    kind: str | None
    numbers: tuple
    allocators: list
    owner: tuple


def misuse_in(text):
    """The messages about misuse in the text."""
    found = []
    for function, pointer, said in LINE.findall(text):
        words, _, owner = said.rpartition("; ")
        kind = next((kind for start, kind in KINDS.items() if words.startswith(start)), None)
        found.append(Misuse(function, pointer, kind, numbers(words), ALLOCATOR.findall(words), numbers(owner)))
    return found


def the_misuse(result):
    """The one message of a run in which HAKMEM says nothing else."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("hakmem: ")]
    found = misuse_in(result.stderr)
    assert len(lines) == len(found) == 1, result.report()
    return found[0]


def aborted(result):
    """The message of a run that it ends."""
    assert result.status == -signal.SIGABRT, result.report()
    return the_misuse(result)


def pointers(result):
    """The pointers that a program printed before it misused them, a line each."""
    return re.findall(r"^0x[0-9a-f]+$", result.stdout, re.MULTILINE)
