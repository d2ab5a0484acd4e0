"""Protects docs/compare-tools.md: its figures are those that tools/compare_tools measured, its pictures small."""

import json
import re
import sys

import pytest

import blackbox

FOLDER = blackbox.REPOSITORY / "tools/compare_tools"
PAGE = blackbox.REPOSITORY / "docs/compare-tools.md"
sys.path.insert(0, str(FOLDER))

import tables  # noqa: E402


@pytest.fixture
def found():
    return json.loads((FOLDER / "figures.json").read_text())


def test_the_page_has_the_figures_that_were_measured(found):
    text = PAGE.read_text()
    assert tables.put(text, found) == text


def test_other_figures_make_another_page(found):
    """Shows that the test above can fail."""
    found["redis"]["hakmem"]["why"]["parts"]["held"] *= 2
    text = PAGE.read_text()
    assert tables.put(text, found) != text


def test_the_page_without_a_place_for_figures_is_refused(found):
    with pytest.raises(ValueError, match="leak"):
        tables.put(PAGE.read_text().replace("<!-- figures of leak -->", ""), found)


def test_pictures_are_shown_and_small():
    pictures = {path.name: path.stat().st_size for path in (blackbox.REPOSITORY / "docs/images/compare").iterdir()}
    shown = re.findall(r"!\[[^\]]{20,}\]\(images/compare/([\w-]+\.png)\)", PAGE.read_text())
    assert sorted(shown) == sorted(pictures)
    assert max(pictures.values()) <= 150_000 and sum(pictures.values()) <= 1_500_000
