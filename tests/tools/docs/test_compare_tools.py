"""Protects docs/dev/compare-tools.md: its figures are those that tools/compare_tools measured."""

import json
import sys

import blackbox

FOLDER = blackbox.REPOSITORY / "tools/compare_tools"
PAGE = blackbox.REPOSITORY / "docs/dev/compare-tools.md"
sys.path.insert(0, str(FOLDER))

import tables  # noqa: E402


def test_the_page_has_the_figures_that_were_measured():
    found, text = json.loads((FOLDER / "figures.json").read_text()), PAGE.read_text()
    assert tables.put(text, found) == text
    found["redis"]["hakmem"]["why"]["parts"]["held"] *= 2
    assert tables.put(text, found) != text
