"""Draws charts of a result as PNG and SVG pictures, for documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert

from hakmem.phrases import plural
from hakmem.report import charts, figures, sentences
from hakmem.report.result import check_result

if TYPE_CHECKING:
    from hakmem.records import Result

WIDTH = 760
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
TEXT, SOFT, LINE = "#1a1d23", "#565d69", "#dfe3e9"


def write_pictures(result: Result, folder: str | Path, stem: str) -> list[Path]:
    """Writes STEM-CHART.svg and .png for each chart for which the result has figures. Returns their paths."""
    check_result(result)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, chart in pictured(result):
        svg = draw(result, chart)
        for suffix, content in ((".svg", svg.encode()), (".png", vl_convert.svg_to_png(svg, scale=2))):
            path = folder / f"{stem}-{name}{suffix}"
            path.write_bytes(content)
            paths.append(path)
    return paths


def pictured(result: Result) -> list[tuple[str, charts.Chart]]:
    """Returns (name, chart) of each picture."""
    legend = alt.Legend(orient="top", direction="horizontal", columns=6, title=None, values=figures.peers(result))
    groups = dict.fromkeys(row["group"] for row in result["rows"].values())
    found = [("time", charts.overall_chart(result, "time", WIDTH)),
             ("memory", charts.overall_chart(result, "peak_rss", WIDTH)),
             ("both", charts.scatter_chart(result, WIDTH))]
    found += [(f"{measure.replace('_', '-')}-{group}s", charts.rows_chart(result, measure, group, WIDTH, legend))
              for measure in ("time", "peak_rss") for group in groups]
    return [(name, chart) for name, chart in found if chart]


def draw(result: Result, chart: charts.Chart) -> str:
    """Returns the SVG of a chart."""
    title = {"text": f"{chart.title}: {result['subject']} and its peers", "subtitle": subtitle(result)}
    spec = {**chart.sizes[0], "title": title}
    version = ".".join(alt.SCHEMA_VERSION.split(".")[:2])
    return vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=version, config=config(result), allowed_base_urls=[])


def subtitle(result: Result) -> str:
    """Returns the line below a picture's title."""
    machine = result["machine"]
    parts = [plural(len(result["rows"]), "row"), sentences.rounds(result), sentences.date(result)[:10],
             figures.value_text(machine["cpu"]) if "cpu" in machine else ""]
    return " · ".join(part for part in parts if part)


def config(result: Result) -> dict[str, Any]:
    """Returns the picture's configuration of Vega-Lite."""
    return {
        "background": "white", "font": FONT, "padding": 16, "view": {"stroke": None},
        "title": {"anchor": "start", "fontSize": 16, "color": TEXT, "subtitleColor": SOFT, "subtitleFontSize": 12,
                  "offset": 14, "subtitlePadding": 5},
        "axis": {"labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE,
                 "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10},
        "axisY": {"labelColor": TEXT, "labelLimit": 260, "ticks": False, "labelPadding": 8},
        "text": {"color": TEXT, "fontSize": 12},
        "range": {"category": charts.palette(result, charts.LIGHT)},
    }
