"""mix.py FOLDER ROUNDS: what Python programs do besides input and output, ROUNDS times.

A simulation of many small objects, a search, floating-point numbers, a tokenizer of regular expressions, dictionaries
and comprehensions, and the building of strings. Every part knows its right answer and ends with status 1 on another.
"""

from __future__ import annotations

import heapq
import json
import re
import sys
from pathlib import Path
from typing import Any

TOKEN = re.compile(
    r'(?P<comment>#.*)|(?P<keyword>\b(?:let|call)\b)|(?P<name>[a-z]+)|(?P<number>\d+)|(?P<string>"[^"]*")'
    r"|(?P<operator><=|==|[-+*/=])|(?P<space>\s+)"
)


def expect(what: str, found: object, wanted: object) -> None:
    """Ends the program if an answer is wrong."""
    if found != wanted:
        sys.exit(f"mix.py: {what}: wrong answer: {found}, expected {wanted}")


class Account:
    """An account that sends and gets money and remembers its payments."""

    def __init__(self, number: int, balance: int) -> None:
        self.number = number
        self.balance = balance
        self.past: list[tuple[int, int, int]] = []

    def pay(self, other: Account, amount: int, at: int) -> None:
        """Sends an amount to another account."""
        amount = min(amount, self.balance)
        self.balance -= amount
        other.balance += amount
        self.past.append((at, -amount, other.number))
        other.past.append((at, amount, self.number))
        if len(self.past) > 20:
            self.past = self.past[10:]


class Event:
    """A due payment. The queue sorts events by time."""

    __slots__ = ("amount", "at", "serial", "source", "target")

    def __init__(self, at: int, serial: int, source: Account, target: Account, amount: int) -> None:
        self.at, self.serial, self.source, self.target, self.amount = at, serial, source, target, amount

    def __lt__(self, other: Event) -> bool:
        return (self.at, self.serial) < (other.at, other.serial)


def simulate(accounts: int, events: int) -> None:
    """Moves money between accounts by events that cause further events. No money is lost."""
    state = 12345
    everyone = [Account(number, 1000) for number in range(accounts)]
    queue: list[Event] = []
    for serial in range(accounts):
        heapq.heappush(queue, Event(serial, serial, everyone[serial], everyone[-serial - 1], serial))
    done = 0
    while done < events:
        event = heapq.heappop(queue)
        event.source.pay(event.target, event.amount, event.at)
        done += 1
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        target = everyone[(state >> 8) % accounts]
        heapq.heappush(queue, Event(event.at + 1 + state % 97, accounts + done, event.target, target, state % 250))
    expect("simulate: money", sum(account.balance for account in everyone), 1000 * accounts)
    expect("simulate: events due", len(queue), accounts)
    balance: dict[tuple[int, int], list[int]] = {}
    for account in everyone:
        for _, amount, other in account.past:
            balance.setdefault((account.number, other), []).append(amount)
    expect("simulate: entries", sum(map(len, balance.values())), sum(len(account.past) for account in everyone))


def place_queens(size: int, columns: frozenset[int] = frozenset(), rising: frozenset[int] = frozenset(),
                 falling: frozenset[int] = frozenset(), row: int = 0) -> int:
    """Returns the number of ways to place queens on a board, with new sets at every step."""
    if row == size:
        return 1
    return sum(
        place_queens(size, columns | {column}, rising | {column + row}, falling | {column - row}, row + 1)
        for column in range(size)
        if column not in columns and column + row not in rising and column - row not in falling
    )


def move_bodies(steps: int) -> None:
    """Moves bodies that attract each other. Their total momentum and their common centre stay the same."""
    bodies = [[float(place), float(place * place % 7), float(place % 3), 0.0, 0.0, 0.0, 1.0 + place]
              for place in range(5)]
    before = [sum(body[6] * body[axis] for body in bodies) for axis in range(3)]
    for _ in range(steps):
        for number, one in enumerate(bodies):
            for other in bodies[number + 1 :]:
                away = [one[axis] - other[axis] for axis in range(3)]
                pull = 0.0001 / (sum(part * part for part in away) + 0.5) ** 1.5
                for axis in range(3):
                    one[axis + 3] -= away[axis] * other[6] * pull
                    other[axis + 3] += away[axis] * one[6] * pull
        for body in bodies:
            for axis in range(3):
                body[axis] += 0.01 * body[axis + 3]
    after = [sum(body[6] * body[axis] for body in bodies) for axis in range(3)]
    expect("move_bodies: centre", [round(part, 9) + 0.0 for part in after], [round(part, 9) + 0.0 for part in before])


def take_apart(text: str, expected: dict[str, Any]) -> None:
    """Counts a text's tokens and names, and adds up its numbers."""
    tokens = [(found.lastgroup, found.group()) for found in TOKEN.finditer(text)]
    counts = dict.fromkeys(expected["tokens"], 0)
    uses: dict[str, int] = {}
    for kind, token in tokens:
        if kind != "space":
            counts[kind] += 1
        if kind == "name":
            uses[token] = uses.get(token, 0) + 1
    most = min((-count, name) for name, count in uses.items())
    expect("take_apart: tokens", counts, expected["tokens"])
    expect("take_apart: total", sum(int(token) for kind, token in tokens if kind == "number"), expected["total"])
    expect("take_apart: names", [len(uses), [-most[0], most[1]]], [expected["names"], expected["most"]])
    expect("take_apart: text", "".join(token for _, token in tokens), text)


def group_numbers(limit: int) -> None:
    """Lists divisors with comprehensions. The sum of their counts is that of limit // n."""
    divisors: dict[int, list[str]] = {number: [] for number in range(1, limit)}
    for divisor in range(1, limit):
        for number in range(divisor, limit, divisor):
            divisors[number].append(str(divisor))
    by_count: dict[int, set[int]] = {}
    for number, found in divisors.items():
        by_count.setdefault(len(found), set()).add(number)
    expect("group_numbers: divisors", sum(count * len(numbers) for count, numbers in by_count.items()),
           sum((limit - 1) // number for number in range(1, limit)))
    primes = {number for number in range(2, limit) if len(divisors[number]) == 2}
    expect("group_numbers: primes", primes, by_count[2])
    pairs = {f"{number}:{'.'.join(found)}": tuple(map(int, found)) for number, found in divisors.items()}
    expect("group_numbers: sums", sum(sum(found) for found in pairs.values()),
           sum(number * ((limit - 1) // number) for number in range(1, limit)))


def build_strings(lines: int) -> None:
    """Grows, cuts, replaces and joins strings."""
    text = ""
    for number in range(lines):
        text += f"{number:05d}|{number * number % 1000:>4}|{'x' * (number % 40)};"
    parts = [part.split("|") for part in text.split(";")[:-1]]
    expect("build_strings: numbers", [int(part[0]) for part in parts], list(range(lines)))
    expect("build_strings: fill", sum(len(part[2]) for part in parts), sum(number % 40 for number in range(lines)))
    table = "\n".join(" ".join(reversed(part)).upper().replace("X", "yz").strip() for part in parts)
    expect("build_strings: replaced", table.count("yz"), sum(number % 40 for number in range(lines)))


def main(folder: str, rounds: str) -> None:
    """Runs the rounds."""
    text = Path(folder, "script.txt").read_text(encoding="utf-8")
    expected = json.loads(Path(folder, "expected.json").read_text(encoding="utf-8"))
    for _ in range(int(rounds)):
        simulate(300, 6000)
        expect("place_queens", place_queens(6), 4)
        move_bodies(120)
        take_apart(text, expected)
        group_numbers(2500)
        build_strings(5000)
    print("right")


main(*sys.argv[1:])
