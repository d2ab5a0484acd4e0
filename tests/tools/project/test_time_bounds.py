"""Protects the tests against a busy machine: a bound of time that only ends a hang is HANG, or as generous."""

import ast

import pytest

import blackbox

TESTS = blackbox.REPOSITORY / "tests"
# Calls that give up after a number of seconds, by module and name, or by a method's name.
CALLS = {("subprocess", "run"), ("subprocess", "check_output"), ("pexpect", "spawn")}
METHODS = {"communicate", "wait", "join"}


def number(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) else None


def bound_of(node):
    """The seconds after which a call gives up, if it is written as a number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and ast.unparse(node.left) == "time.monotonic()":
        return number(node.right)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    method = node.func.attr in METHODS
    if not method and (ast.unparse(node.func.value), node.func.attr) not in CALLS:
        return None
    named = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
    first = node.args[:1] if node.func.attr in ("wait", "join") else []
    return next((number(value) for value in [*named, *first]), None)


def short_bounds(text):
    """The lines with a bound shorter than HANG."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if (bound_of(node) or blackbox.HANG) < blackbox.HANG]


def test_every_bound_is_generous():
    found = [f"{path.relative_to(TESTS)}:{line}" for path in sorted(TESTS.rglob("*.py"))
             for line in short_bounds(path.read_text())]
    assert found == []


@pytest.mark.parametrize("text", [
    "subprocess.run(words, timeout=60)", "pexpect.spawn(words, timeout=30)", "process.communicate('x', timeout=2.5)",
    "process.wait(30)", "thread.join(120)", "end = time.monotonic() + 10"])
def test_a_short_one_is_found(text):
    assert short_bounds(text) == [1]


@pytest.mark.parametrize("text", ["process.wait()", "thread.join()", "', '.join(words)", "time.monotonic() + seconds",
                                  "subprocess.run(words, timeout=blackbox.HANG)", "process.wait(timeout=5000)"])
def test_another_is_not(text):
    assert short_bounds(text) == []
