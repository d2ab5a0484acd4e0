"""The memory orders that src/ states for its atomic objects, and the accesses that no statement covers.

A comment states how threads access an object: `Order: release in slab_carve, acquire without the lock`. It names one of
WORDS. A comment behind a declaration holds for that declaration. One on lines of its own holds down to the next empty
line, or to the line that closes the struct; a comment behind a declaration overrides it.

Every atomic object that src/ declares has such a comment. An access that is not relaxed has one that names its order,
or a comment of its own (ACCESS_WORDS) on its line or within the three lines above. A fence always has its own."""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# `any`: relaxed is enough, and a stronger order, such as that of a plain access, promises nothing.
WORDS = {"relaxed", "acquire", "release", "seq_cst", "any"}
NEEDED = {"acquire": {"acquire"}, "consume": {"acquire"}, "release": {"release"}, "acq_rel": {"acquire", "release"},
          "seq_cst": {"seq_cst"}}
ACCESS_WORDS = re.compile(r"\b(?:Acquire|Release|Sequentially consistent)\b")
NEAR = 3

STATEMENT = re.compile(r"\bOrder(?: of [^:.]*)?:\s(.*)", re.S)
COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
ACCESS = re.compile(r"\b(?:atomic_(load|store|exchange|compare_exchange_\w+?|fetch_[a-z]+|thread_fence|signal_fence)"
                    r"(_explicit)?|__atomic_(\w+))\s*\(")
ORDER = re.compile(r"\b(?:memory_order_|__ATOMIC_)(\w+)")
POINTER = re.compile(r"\*\s*_Atomic\s+(\w+)")
OBJECT = re.compile(r"\b_Atomic(?:\((?:[^()]|\([^()]*\))*\)|\s+(?:struct\s+)?\w+)\s+(\w[^;]*);")
# A pointer to an atomic object: the object's declaration has the comment.
POINTED = re.compile(r"\b_Atomic(?:\([^()]*\))?[^;,()=]*\*\s*(\w+)")
# Of a header's HAK_DATA: the header has the comment.
DEFINED = "HAK_DATA_HERE"


@dataclass
class Source:
    """A file: its code without comments and strings, its comments, and their indents by their first lines."""

    path: Path
    code: str
    comments: list[tuple[int, int, str, bool]] = field(default_factory=list)  # first and last line, text, alone
    indents: dict[int, int] = field(default_factory=dict)

    def line_at(self, position: int) -> int:
        """Returns the number, from 1, of the line at a position of the code."""
        return self.code.count("\n", 0, position) + 1

    def comment_near(self, first: int, last: int) -> bool:
        """Returns whether a comment on the lines, or ending within NEAR lines above, says an order."""
        return any(first - NEAR <= end and start <= last and ACCESS_WORDS.search(text)
                   for start, end, text, _ in self.comments)


def read_source(path: Path, text: str) -> Source:
    """Takes a file apart."""
    source = Source(path, "")

    def blank(match: re.Match[str]) -> str:
        token = match.group()
        if token[0] == "/":
            line = text.count("\n", 0, match.start()) + 1
            before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            source.indents[line] = len(before)
            source.comments.append((line, line + token.count("\n"), token, not before.strip()))
        return re.sub(r"[^\n]", " ", token)

    source.code = COMMENT_OR_STRING.sub(blank, text)
    return source


def stated_orders(comment: str) -> set[str] | None:
    """Returns the orders that a comment states, none if it says nothing else; None if it is no such comment."""
    match = STATEMENT.search(comment)
    if not match:
        return None
    orders = WORDS.intersection(re.findall(r"\w+", match[1]))
    return orders if set(re.findall(r"\w+", comment)) - orders - {"Order"} else set()


def statements(source: Source) -> dict[int, set[str]]:
    """Returns {line: the orders that hold for what it declares}."""
    held: dict[int, set[str]] = {}
    lines = source.code.split("\n")
    alone_lines = {line for first, last, _, alone in source.comments if alone for line in range(first, last + 1)}
    for first, last, text, alone in source.comments:
        orders = stated_orders(text)
        if orders is None or not alone:
            continue
        indent = source.indents[first]
        for line in range(last + 1, len(lines) + 1):
            closing = re.match(r"(\s*)\}", lines[line - 1])
            if line not in alone_lines and (not lines[line - 1].strip() or (closing and len(closing[1]) <= indent)):
                break
            held[line] = orders
    for first, _, text, alone in source.comments:
        orders = stated_orders(text)
        if orders is not None and not alone:
            held[first] = orders
    return held


def declared_names(declarators: str) -> list[str]:
    """Returns the names in the declarators behind a type; a pointer to an atomic object is none."""
    names, depth, start = [], 0, 0
    for position, character in enumerate(declarators + ","):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            name = re.match(r"\s*(\w+)\s*(?:[\[=:]|$)", declarators[start:position])
            names += [name[1]] if name else []
            start = position + 1
    return names


def atomic_objects(source: Source) -> Iterator[tuple[int, str]]:
    """Yields (line, name) of each atomic object that a file declares."""
    for match in POINTER.finditer(source.code):
        yield source.line_at(match.start(1)), match[1]
    for match in OBJECT.finditer(source.code):
        if "(" not in match[1].split("=")[0].split("[")[0]:
            for name in declared_names(match[1]):
                yield source.line_at(match.start(1)), name


def is_definition(source: Source, line: int) -> bool:
    """Returns whether the line defines what a header declares."""
    return DEFINED in source.code.split("\n")[line - 1]


def arguments_at(code: str, start: int) -> list[str]:
    """Returns the arguments of the call whose parenthesis opens before `start`."""
    depth, begin, found = 1, start, list[str]()
    for position in range(start, len(code)):
        character = code[position]
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if depth == 0 or (character == "," and depth == 1):
            found.append(code[begin:position])
            begin = position + 1
        if depth == 0:
            break
    return found


def operand_names(operand: str) -> list[str]:
    """Returns the last member or variable that an operand names; of `a ? b : c` those of b and c."""
    operand = operand.split("?", 1)[-1]
    names = []
    for part in operand.split(":"):
        part = part.strip()
        while part.endswith("]"):
            depth, position = 0, len(part)
            while position > 0:
                position -= 1
                depth += {"]": 1, "[": -1}.get(part[position], 0)
                if depth == 0:
                    break
            part = part[:position].strip()
        match = re.search(r"(\w+)$", part)
        names += [match[1]] if match else []
    return names


def covers(known: set[str], order: str) -> bool:
    """Returns whether a comment that names the orders `known` allows an access. A default one has every order."""
    if order == "default":
        return bool(known - {"relaxed"})
    return NEEDED[order] <= known or "any" in known


def check_source(source: Source, orders: dict[str, list[set[str]]]) -> Iterator[tuple[str, str]]:
    """Yields (where, what) of each access that no statement covers. orders: {name: what its declarations state}."""
    pointers = set(POINTED.findall(source.code))
    for match in ACCESS.finditer(source.code):
        arguments = arguments_at(source.code, match.end())
        first = source.line_at(match.start())
        last = first + sum(argument.count("\n") for argument in arguments)
        said = [word.lower() for word in ORDER.findall(" ".join(arguments))]
        order = next((word for word in said if word != "relaxed"), "relaxed" if said else "default")
        if order == "relaxed" or source.comment_near(first, last):
            continue
        where = f"{source.path}:{first}"
        if "fence" in match.group():
            yield where, "a fence without a comment that names its partner"
            continue
        for name in operand_names(arguments[0]) or [arguments[0].strip()]:
            if name not in pointers and not any(covers(known, order) for known in orders.get(name, [])):
                yield where, f"accesses {name} with {order}, which no comment `Order: ...` at its declaration names"


def check_orders(root: Path) -> Iterator[tuple[str, str]]:
    """Yields (where, what) of each atomic object and each access without a stated order."""
    sources = [read_source(path.relative_to(root), path.read_text())
               for path in sorted((root / "src").rglob("*")) if path.suffix in (".c", ".h")]
    orders: dict[str, list[set[str]]] = {}
    for source in sources:
        held = statements(source)
        for line, name in atomic_objects(source):
            if is_definition(source, line):
                continue
            if not held.get(line):
                yield f"{source.path}:{line}", f"{name} has no comment `Order: ...` that says how threads access it"
        lines = source.code.split("\n")
        for line, known in held.items():
            for name in re.findall(r"\b(\w+)\b(?=\s*(?:\[[^\]]*\]\s*)*(?:\)\s*\(|[;,=]))", lines[line - 1]):
                orders.setdefault(name, []).append(known)
    for source in sources:
        yield from check_source(source, orders)
