"""Protects the number of instructions of each benchmark driver: it equals the golden file (see check.py)."""

from test_golden import verify


def test_cost_of_instructions():
    verify("instructions")
