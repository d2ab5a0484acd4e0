"""Names of types for the benchmark's JSON objects. report/result.schema.json says which keys a result has."""

from __future__ import annotations

from typing import Any

# A whole result. A sample: one run. An entry: the summary of one row on one allocator. A ratio with its interval.
Result = dict[str, Any]
Sample = dict[str, Any]
Entry = dict[str, Any]
Ratio = dict[str, Any]
# Figures of a run by their names, and what a chart draws of one.
Figures = dict[str, Any]
Record = dict[str, Any]
