#!/usr/bin/env python3
"""Draws docs/images/architecture.svg: the layers of src/, and which layer includes headers of which, as its files do.

A row is a layer; lower layers stand lower. A dot in a layer's row says that the layer includes headers of another: the
line through the dot leads down to that one. Dots have three sizes instead of numbers, so that the picture changes when
the architecture does and not with every include. The text of a row is the beginning of the layer's row in
src/README.md.
"""
import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path

from check_architecture import LAYERS, LEAF, is_leaf, layer_of, source_files

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs/images/architecture.svg")
PUBLIC = "include/hakmem"
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(hakmem/[^>]+)>)', re.M)
# Rows, highest first. The counters stand where they may be used from: above what they use.
ROWS = [*reversed(LAYERS[2:]), LEAF, *reversed(LAYERS[:2]), PUBLIC]
OTHER_TEXTS = {LEAF: "counters of events, which any layer may include",
               PUBLIC: "what programs include: no internal header"}

# The fewest includes of each size of dot, and its radius.
DOTS = ((1, 3.0), (5, 5.0), (20, 7.0))
MARGIN, TOP, WIDE, HIGH, GAP, STEP = 16, 118, 440, 38, 10, 30
TEXT_MOST = 70
STYLE = """\
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .ground { fill: #ffffff; }
  .head { font-size: 16px; font-weight: 600; }
  .name { font-size: 14px; font-weight: 600; }
  .note { font-size: 11px; fill: #59636e; }
  .column { font-size: 11px; }
  .layer { fill: #ddf4ff; stroke: #0969da; }
  .aside { fill: #f6f8fa; stroke: #818b98; stroke-dasharray: 4 3; }
  .row { stroke: #d1d9e0; }
  .line { stroke: #0969da; stroke-width: 1.5; fill: none; }
  .dot, .point { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .ground { fill: #0d1117; }
    .note { fill: #9198a1; }
    .layer { fill: #12243a; stroke: #4493f8; }
    .aside { fill: #151b23; stroke: #656c76; }
    .row { stroke: #3d444d; }
    .line { stroke: #4493f8; }
    .dot, .point { fill: #4493f8; }
  }
"""


@dataclass(frozen=True)
class Graph:
    """What a tree includes: the files of each row, and how often one row includes headers of another."""

    files: dict[str, int]
    uses: dict[tuple[str, str], int]

    def used_by(self, user: str) -> list[str]:
        """Returns the rows that a row includes, highest first."""
        return [used for used in ROWS if (user, used) in self.uses]


def row_of(path: str | Path) -> str:
    """Returns the row of a path relative to src/, or of a public header."""
    if str(path).startswith("hakmem/"):
        return PUBLIC
    return LEAF if is_leaf(path) else layer_of(path)


def read_graph(root: Path) -> Graph:
    """Reads the includes of all files of src/ and include/."""
    files: Counter[str] = Counter()
    uses: Counter[tuple[str, str]] = Counter()
    for path in source_files(root):
        user = row_of(path.relative_to(path.parts[0]))
        files[user] += 1
        for internal, public in INCLUDE.findall((root / path).read_text()):
            used = row_of(internal or public)
            if used != user:
                uses[user, used] += 1
    return Graph(dict(files), dict(uses))


def read_texts(root: Path) -> dict[str, str]:
    """Returns {row: what it is}: of src/README.md's text as many whole parts as fit."""
    texts = dict(OTHER_TEXTS)
    for layer, text in re.findall(r"^\| `(\w+)/` \| (.*) \|$", (root / "src/README.md").read_text(), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", text)
        text = re.split(r"; | \(", text)[0]
        while len(text) > TEXT_MOST:
            text = text.rpartition(",")[0]
        texts[layer] = text
    return texts


def radius(count: int) -> float:
    """Returns the radius of the dot for a number of includes."""
    return max(size for least, size in DOTS if count >= least)


def top_of(row: str) -> int:
    """Returns the upper edge of a row's box."""
    return TOP + ROWS.index(row) * (HIGH + GAP)


def column_of(row: str) -> int:
    """Returns where the line stands that leads down to a row."""
    return MARGIN + WIDE + 40 + (ROWS.index(row) - 1) * STEP


def draw_row(row: str, graph: Graph, text: str) -> list[str]:
    """Draws the box of a row, and the line on which its dots are."""
    top, used = top_of(row), graph.used_by(row)
    lines = [f'<rect class="{"layer" if row in LAYERS else "aside"}" x="{MARGIN}" y="{top}" width="{WIDE}" '
             f'height="{HIGH}" rx="6"/>',
             f'<text class="name" x="{MARGIN + 12}" y="{top + 16}">{escape(row)}</text>',
             f'<text class="note" x="{MARGIN + WIDE - 12}" y="{top + 16}" text-anchor="end">{graph.files.get(row, 0)} '
             'files</text>',
             f'<text class="note" x="{MARGIN + 12}" y="{top + 31}">{escape(text)}</text>']
    if used:
        y = top + HIGH - 9
        lines.insert(0, f'<path class="row" d="M{MARGIN + WIDE} {y}H{column_of(used[-1])}"/>')
    return lines


def draw_column(used: str, graph: Graph) -> list[str]:
    """Draws the line that leads down to a row, with an arrow into its box and a dot in the row of each user."""
    users = [user for user in ROWS if (user, used) in graph.uses]
    if not users:
        return []
    x, y, end = column_of(used), top_of(used) + 11, MARGIN + WIDE
    first = top_of(users[0]) + HIGH - 9
    lines = [f'<path class="line" d="M{x} {first}V{y}H{end + 8}"/>',
             f'<path class="point" d="M{end + 1} {y}l9 -4.5v9z"/>',
             f'<text class="column" transform="translate({x - 2} {TOP + 8}) rotate(-55)">{escape(used)}</text>']
    for user in users:
        count = graph.uses[user, used]
        lines.append(f'<circle class="dot" cx="{x}" cy="{top_of(user) + HIGH - 9}" r="{radius(count):g}"><title>'
                     f'{escape(user)} includes headers of {escape(used)}</title></circle>')
    return lines


def draw_legend(y: int) -> list[str]:
    """Draws what the sizes of dots mean."""
    lines, x = [], MARGIN + 8
    for (least, size), (most, _) in zip(DOTS, [*DOTS[1:], (0, 0.0)]):
        text = f"{least} to {most - 1} includes" if most else f"{least} or more"
        lines += [f'<circle class="dot" cx="{x}" cy="{y - 4}" r="{size:g}"/>',
                  f'<text class="note" x="{x + 13}" y="{y}">{text}</text>']
        x += 125
    lines.append(f'<text class="note" x="{x}" y="{y}">dashed: no layer of its own</text>')
    return lines


def description(graph: Graph) -> str:
    """Returns the picture's contents as sentences, for readers who do not see it."""
    said = [f"{row} includes headers of {', '.join(used)}." if (used := graph.used_by(row)) else
            f"{row} includes no header of another." for row in ROWS]
    return f"The layers from the highest to the lowest: {', '.join(reversed(LAYERS))}. " + " ".join(said)


def draw(root: Path) -> str:
    """Returns the picture of a tree."""
    graph, texts = read_graph(root), read_texts(root)
    width = column_of(ROWS[-1]) + 60
    legend = top_of(ROWS[-1]) + HIGH + 30
    body = [part for used in ROWS for part in draw_column(used, graph)]
    # Rows first: their thin lines lie under the columns.
    body = [part for row in ROWS for part in draw_row(row, graph, texts.get(row, ""))] + body + draw_legend(legend)
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {legend + 16}" width="{width}" '
            f'height="{legend + 16}" role="img" aria-labelledby="title desc">',
            '<title id="title">The layers of HAKMEM\'s source, and which includes which</title>',
            f'<desc id="desc">{escape(description(graph))}</desc>', f"<style>\n{STYLE}</style>",
            '<rect class="ground" width="100%" height="100%"/>',
            f'<text class="head" x="{MARGIN}" y="30">The layers of src/, the lowest last</text>',
            f'<text class="note" x="{MARGIN}" y="50">A dot: the row\'s layer includes headers of the layer to '
            'which the line leads down.</text>',
            f'<text class="note" x="{MARGIN}" y="66">No line leads up: no layer includes a higher one. Any may include '
            'observe/counters.</text>']
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the picture differs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to draw")
    options = parser.parse_args()
    picture, text = options.root / PICTURE, draw(options.root)
    if not options.check:
        picture.write_text(text)
    elif not picture.is_file() or picture.read_text() != text:
        sys.exit(f"{PICTURE} does not show this tree; draw it again: tools/draw_architecture.py")


if __name__ == "__main__":
    main()
