"""Names for JSON objects of the benchmark, whose keys are chosen when they are read.
report/result.schema.json says what a result holds."""

from __future__ import annotations

from typing import Any

# A whole result, a sample of it (one run), the summary's entry of a row and allocator, a ratio with its interval.
Result = dict[str, Any]
Sample = dict[str, Any]
Entry = dict[str, Any]
Ratio = dict[str, Any]
# Figures of a run by their names, and what a chart draws of one.
Figures = dict[str, Any]
Record = dict[str, Any]
