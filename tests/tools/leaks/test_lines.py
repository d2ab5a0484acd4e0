"""Protects the lines in reports of leaks, which llvm-symbolizer finds in the program's debug information."""

from pathlib import Path


def test_names_and_lines(leaks):
    site = leaks(["all", "return"]).site("lose_large")
    names = [frame["name"].partition("(")[0] for frame in site["frames"]]
    assert names[:3] == ["take", "lose_large", "main"]
    text = Path(site["frames"][0]["file"]).read_text().splitlines()[site["frames"][0]["line"] - 1]
    assert "malloc(size)" in text
