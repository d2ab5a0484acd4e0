"""Finds memory that a program has lost at its end: blocks still in use that nothing points to."""
