"""Source files for compilers: C functions with all kinds of statements, and C++ that instantiates many templates."""

from __future__ import annotations

import random
from collections.abc import Iterator

FIELDS = ("count", "weight", "left", "right", "state")


def make_c(seed: int, functions: int) -> Iterator[str]:
    """Yields a C file without an #include: structures, expressions, loops, switches and calls of earlier functions."""
    generator = random.Random(seed)
    yield "struct node { long count, weight, left, right, state; struct node *next; char name[16]; };"
    yield "extern long table[256];"
    for number in range(functions):
        yield from c_function(generator, number)


def expression(generator: random.Random, depth: int, names: list[str]) -> str:
    """Returns a random expression."""
    if depth == 0 or generator.random() < 0.15:
        return generator.choice([generator.choice(names), f"node->{generator.choice(FIELDS)}",
                                 f"table[{generator.choice(names)} & 255]", str(generator.randint(1, 1000))])
    left, right = (expression(generator, depth - 1, names) for _ in range(2))
    kind = generator.choice(("+", "-", "*", "^", "&", "|", "<", "?", ">>"))
    if kind == "?":
        return f"({left} > {right} ? {left} : {expression(generator, depth - 1, names)})"
    return f"(({left}) {kind} ({right}{' & 15' if kind == '>>' else ''}))"


def c_function(generator: random.Random, number: int) -> Iterator[str]:
    """Yields the lines of a C function."""
    names = ["a", "b", "c", "i"]
    yield f"long work_{number}(struct node *node, long a, long b)"
    yield "{"
    yield f"    long c = {generator.randint(1, 99)}, i = 0;"
    for _ in range(generator.randint(2, 4)):
        choice = generator.randrange(4)
        if choice == 0:
            yield "    for (i = 0; i < (a & 63); i++) {"
            yield f"        c += {expression(generator, 3, names)};"
            yield f"        node->{generator.choice(FIELDS)} ^= {expression(generator, 2, names)};"
            yield "    }"
        elif choice == 1:
            yield f"    switch ({expression(generator, 1, names)} & 7) {{"
            for case in range(generator.randint(3, 7)):
                yield f"    case {case}: c = {expression(generator, 2, names)}; break;"
            yield f"    default: b -= {expression(generator, 2, names)};"
            yield "    }"
        elif choice == 2:
            yield f"    while (node->next && {expression(generator, 1, names)} > b) {{"
            yield f"        node = node->next; b += {expression(generator, 2, names)};"
            yield "    }"
        else:
            callee = f"work_{generator.randrange(number)}" if number else "(long)node + "
            yield f"    if ({expression(generator, 2, names)})"
            yield f"        c ^= {callee}({'node, c, b' if number else 'c'});"
    yield "    return a + b * c;"
    yield "}"


def make_cxx(seed: int, types: int) -> Iterator[str]:
    """Yields a C++ file that uses the standard containers, each with its own key and value types."""
    generator = random.Random(seed)
    yield from ("#include <map>", "#include <string>", "#include <vector>")
    for number in range(types):
        yield f"struct record_{number} {{ int key[{number + 1}]; std::string text; double weight; }};"
        yield f"inline bool operator<(const record_{number} &a, const record_{number} &b)"
        yield f"{{ return a.weight < b.weight || (a.weight == b.weight && a.text.size() + {number} < b.text.size()); }}"
        holder = generator.choice(("std::map<std::string, {0}>", "std::map<int, {0}>"))
        yield f"double use_{number}(int n) {{"
        yield f"    {holder.format(f'std::vector<record_{number}>')} all;"
        yield f"    record_{number} one{{{{1}}, \"one\", {number}}};"
        key = "std::to_string(i)" if "std::string," in holder else "i"
        yield f"    for (int i = 0; i < n; i++) {{ one.weight += i; all[{key}].push_back(one); }}"
        yield "    auto weigh = [n](auto &some) { return some.weight * n; };"
        yield "    double sum = 0;"
        yield "    for (auto &pair : all)"
        yield "        for (auto &some : pair.second) sum += some < one ? weigh(some) : 0;"
        yield "    return sum;"
        yield "}"
