"""Finds the places of a C source that mutants change, in its syntax tree."""

from collections import Counter
from dataclasses import dataclass, replace

import tree_sitter_c
from tree_sitter import Language, Node, Parser

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
OPERATORS = {"&&": "||", "||": "&&", "+": "-", "-": "+", "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=",
             "&": "|", "|": "&"}
ORDERS = ("memory_order_acquire", "memory_order_release", "memory_order_acq_rel", "memory_order_seq_cst")
# Calls that tests ignore by design: traces of debug builds.
UNSEEN = ("debug_count", "debug_count_of", "CYCLES_PART", "HAK_ASSERT", "touched_note",
          "lock_rank_push", "lock_rank_pop")
KINDS = ("comparison", "operator", "constant", "condition", "store", "call", "order")
# Nodes whose expressions are not executed.
STATIC = ("enumerator", "preproc_def", "preproc_if", "preproc_function_def", "static_assert_declaration",
          "attribute_specifier",
          "array_declarator", "bitfield_clause", "case_statement_label")


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of `file` become `to`."""

    file: str
    line: int
    function: str
    kind: str
    start: int
    end: int
    was: str
    to: str
    text: str  # the line, without the blanks around it
    which: int = 0  # among the mutants of the file that are told alike, but for the line's number

    def apply(self, source: bytes) -> bytes:
        """Returns the changed source, with the same number of lines, so that messages name the same ones."""
        lost = source[self.start:self.end].count(b"\n") - self.to.count("\n")
        return source[:self.start] + self.to.encode() + b"\n" * lost + source[self.end:]

    def told(self) -> str:
        """Returns a line that describes the mutant."""
        return f"{self.file}:{self.line} {self.function}: {self.kind}: {shortened(self.was)} -> {shortened(self.to)}"

    def key(self) -> tuple[str, str, str, str]:
        """Returns what identifies the mutant even after lines have moved."""
        return self.file, self.text, " ".join(self.was.split()), self.to


def shortened(text: str) -> str:
    """Returns at most 60 characters of the text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def text_of(node: Node) -> str:
    """Returns the source of the node."""
    return (node.text or b"").decode()


def called_name(call: Node) -> str:
    """Returns the called function's name, or the expression that is called."""
    function = call.child_by_field_name("function")
    return text_of(function) if function else ""


def constant_to(text: str) -> str | None:
    """Returns another value for a literal; None if no other value is worth a build."""
    if text in ("true", "false"):
        return "false" if text == "true" else "true"
    digits = text.rstrip("uUlL")
    if not digits.isdigit():
        return None
    return str(int(digits) + 1) + text[len(digits):]


def changes_at(node: Node, function: str) -> list[tuple[str, Node, str]]:
    """Returns the changes at this node itself: (kind, the node to replace, the replacement)."""
    if node.type == "binary_expression" or node.type == "assignment_expression":
        operator = node.child_by_field_name("operator")
        if operator is None:
            return []
        if operator.type in COMPARISONS:
            return [("comparison", operator, COMPARISONS[operator.type])]
        if operator.type in OPERATORS:
            return [("operator", operator, OPERATORS[operator.type])]
    if node.type in ("number_literal", "true", "false"):
        to = constant_to(text_of(node))
        return [("constant", node, to)] if to else []
    if node.type == "if_statement":
        condition = node.child_by_field_name("condition")
        return [("condition", condition, f"(!{text_of(condition)})")] if condition else []
    if node.type == "expression_statement" and node.named_child_count:
        inner = node.named_child(0)
        if inner is not None and inner.type in ("assignment_expression", "update_expression"):
            return [("store", node, ";")]
        if inner is not None and inner.type == "call_expression":
            return [("store" if called_name(inner).startswith(
                ("atomic_store", "__atomic_store")) else "call", node, ";")]
    if node.type == "identifier" and text_of(node) in ORDERS:
        return [("order", node, "memory_order_relaxed")]
    return []


def is_unseen(node: Node) -> bool:
    """Returns whether the node's subtree is left unchanged."""
    if node.type in STATIC:
        return True
    if node.type == "call_expression":
        return called_name(node) in UNSEEN
    if node.type == "expression_statement" and node.named_child_count:
        inner = node.named_child(0)
        return inner is not None and inner.type == "call_expression" and called_name(inner) in UNSEEN
    if node.type == "if_statement":
        condition = node.child_by_field_name("condition")
        return condition is not None and "HAK_DEBUG" in text_of(condition)
    return False


def find_candidates(file: str, source: bytes) -> list[Mutant]:
    """Returns all mutants of the file, in the order of their places."""
    tree = Parser(Language(tree_sitter_c.language())).parse(source)
    lines = source.decode().splitlines()
    found: list[Mutant] = []

    def walk(node: Node, function: str) -> None:
        if node.type == "function_definition":
            declarator = node.child_by_field_name("declarator")
            while declarator is not None and declarator.type != "identifier":
                declarator = declarator.child_by_field_name("declarator")
            function = text_of(declarator) if declarator else function
        if is_unseen(node):
            return
        if function:
            for kind, place, to in changes_at(node, function):
                line = place.start_point[0]
                found.append(
                    Mutant(file, line + 1, function, kind, place.start_byte, place.end_byte, text_of(place), to,
                           lines[line].strip()))
        for child in node.children:
            walk(child, function)

    walk(tree.root_node, "")
    alike: Counter[tuple[str, ...]] = Counter()
    for at, mutant in enumerate(found):
        key = (mutant.function, mutant.kind, shortened(mutant.was), mutant.to, mutant.text)
        found[at] = replace(mutant, which=alike[key])
        alike[key] += 1
    return found
