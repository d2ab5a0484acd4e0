"""Draws the charts as Vega-Lite, with altair. The page or picture sets the colors of text and axes.

Ratios are the subject's figure divided by another allocator's, as in the result, on log axes. Only the scatter divides
each allocator's figure by the subject's, so that the best allocators lie at its lower left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

import altair as alt

from hakmem.compat import zip_strict
from hakmem.phrases import capital, plural
from hakmem.report import figures, labels

if TYPE_CHECKING:
    from hakmem.records import Ratio, Record, Result

GREY = "#868c96"
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7,
         10, 15, 20, 30, 50, 100, 200, 500, 1000)
# Colors of the subject and then of its peers, on light and on dark. They differ in hue and lightness, each has a
# contrast of 3:1 to its background, and shapes and names distinguish them as well.
LIGHT = ("#c4320a", "#0b62a8", "#2f8fd6", "#00785a", "#a66f00", "#b0498b", "#5b3fb5", "#8466d6", "#00828a", "#6b5b4b",
         "#4a515c", "#6f7a00", "#8a1c4a")
DARK = ("#ff8a5c", "#5aa9ff", "#9ad4ff", "#3ccf9e", "#f0b23c", "#ee8fcb", "#a996ff", "#cfc3ff", "#42d3da", "#c9b39b",
        "#b4bac4", "#c3ce4c", "#f2779f")
SHAPES = ("diamond", "circle", "square", "triangle-up", "triangle-down", "cross", "circle", "square", "triangle-up",
          "triangle-down", "diamond", "cross", "circle")
# The least width of a chart in each class of page widths. page.js says where the classes begin.
LEAST_WIDTHS = (300, 560, 900)
# The highlighted points: those of the chosen allocators, or else the best of each row.
CHOSEN = "length(chosen) > 0 ? indexof(chosen, datum.allocator) >= 0 : datum.first"


Width = Union[int, Literal["container"]]


@dataclass
class Chart:
    """A chart, its title, and a description for those who cannot see it."""
    name: str
    title: str
    text: str
    sizes: list[dict[str, Any]]  # Vega-Lite for each class of widths of a page: narrow, middle, wide; or one for all


def names(result: Result) -> list[str]:
    """Returns the allocators in the order that gives them their colors: the subject, then its peers."""
    return [result["subject"], *figures.peers(result)]


def palette(result: Result, colors: Sequence[str]) -> list[str]:
    """Returns the colors of the allocators."""
    return [colors[number % len(colors)] for number in range(len(names(result)))]


def shapes(result: Result) -> list[str]:
    """Returns the shapes of the allocators."""
    return [SHAPES[number % len(SHAPES)] for number in range(len(names(result)))]


def color_scale(result: Result) -> alt.Scale:
    """Returns the scale of colors. config.range.category, which a dark page overrides, has the colors."""
    return alt.Scale(domain=names(result))


def shape_scale(result: Result) -> alt.Scale:
    """Returns the scale of shapes."""
    return alt.Scale(domain=names(result), range=shapes(result))


def vega_lite(layers: Sequence[alt.Chart], data: dict[str, list[Record]], text: str, width: Width, height: int,
              **more: Any) -> dict[str, Any]:
    """Returns the layers as one Vega-Lite chart, without altair's configuration and the schema's address. The layers
    name their data, so that altair neither copies nor checks it."""
    chart = alt.layer(*layers, **more).properties(
        width=width, height=height, description=text)
    if width != "container":
        chart = chart.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    spec = {key: value for key, value in chart.to_dict().items() if key not in ("$schema", "config")}
    return {**spec, "datasets": {**data, "one": [{"one": 1}]}}


def domain(values: Iterable[float], least: float = 1.15, spare: float = 0.04) -> list[float]:
    """Returns a log axis around 1 that holds all values, extended on each side by a part of its length."""
    low, high = min([1 / least, *values]), max([least, *values])
    margin = (high / low) ** spare
    return [low / margin, high * margin]


def ticks(limits: Sequence[float], count: int = 7) -> list[float]:
    """Returns round values inside the limits, at most about `count` of them. 1 is among them."""
    low, high = (math.log(limit) for limit in limits)
    step = (high - low) / count
    chosen = [0.0]
    for tick in sorted((math.log(tick) for tick in TICKS if tick != 1), key=abs):
        if low <= tick <= high and all(abs(tick - other) >= step for other in chosen):
            chosen.append(tick)
    return sorted(round(math.exp(tick), 4) for tick in chosen)


def ratio_title(subject: str) -> str:
    """Returns the title of an axis of ratios."""
    return f"{subject} ÷ allocator; below 1, {subject} takes less"


def ratio_axis(limits: Sequence[float], title: str, count: int = 7,
               anchor: Literal["middle", "end"] = "middle") -> dict[str, Any]:
    """Returns the settings of an axis of ratios."""
    return {"scale": alt.Scale(type="log", domain=limits, nice=False),
            "axis": alt.Axis(values=ticks(limits, count), format="~g", title=title, titleAnchor=anchor)}


def interval_record(figure: Ratio) -> Record:
    """Returns a ratio and its interval as a record."""
    return {"ratio": figure["median"], "low": figure["low"], "high": figure["high"],
            "interval": figures.interval_text(figure)}


def one_rule(axis: str = "x") -> alt.Chart:
    """Returns the dashed line at 1."""
    rule: alt.Chart = alt.Chart(alt.NamedData("one")).mark_rule(color=GREY, strokeDash=[4, 3]).encode(
        **{axis: "one:Q"})
    return rule


# ---- Overall ----

def overall_chart(result: Result, measure: str, width: Width = "container") -> Chart | None:
    """Returns a chart with each allocator's geometric mean and its interval. A band shows the noise."""
    subject = result["subject"]
    records = [{"allocator": subject, **interval_record({"median": 1, "low": 1, "high": 1}), "interval": "the subject"}]
    records += [{"allocator": name, **interval_record(figure)} for name in figures.peers(result)
                if (figure := figures.overall(result, name, measure))]
    if len(records) < 2:
        return None
    records.sort(key=lambda record: -record["ratio"])
    for record in records:
        record["label"] = figures.ratio_text(record["ratio"])
    order = [record["allocator"] for record in records]
    noise = figures.overall(result, figures.again(result), measure)
    limits = domain([figure[key] for figure in (*records, *([noise] if noise else [])) for key in ("low", "high")],
                    spare=0.12)
    title = figures.OVERALL[measure]
    axis = ratio_axis(limits, ratio_title(subject), 6, "end")

    base = alt.Chart(alt.NamedData("means")).encode(
        y=alt.Y("allocator:N", title=None, scale=alt.Scale(domain=order)),
        color=alt.Color("allocator:N", scale=color_scale(result), legend=None),
        tooltip=[alt.Tooltip("allocator:N"), alt.Tooltip("interval:N", title="ratio")])
    for record in records:
        record["left"] = labels.at(record["ratio"], limits, 1) > 0.3 and record["ratio"] <= 1
    # The figure stands on the side away from 1, or away from the names if those are near.
    text = alt.Chart(alt.NamedData("means")).encode(
        y=alt.Y("allocator:N", scale=alt.Scale(domain=order)), text="label:N")
    leftward = text.transform_filter("datum.left").mark_text(dx=-11, align="right").encode(x=alt.X("low:Q", **axis))
    rightward = text.transform_filter("!datum.left").mark_text(dx=11, align="left").encode(x=alt.X("high:Q", **axis))
    layers = [one_rule(),
              base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **axis), x2="high:Q"),
              base.mark_point(filled=True, size=90, opacity=1).encode(
                  x=alt.X("ratio:Q", **axis), shape=alt.Shape("allocator:N", scale=shape_scale(result), legend=None)),
              leftward, rightward]
    if noise:
        layers.insert(0, alt.Chart(alt.NamedData("noise")).mark_rect(color=GREY, opacity=0.3, clip=True).encode(
            x=alt.X("low:Q", **axis), x2="high:Q", tooltip=[alt.Tooltip("interval:N", title="noise (A/A)")]))
    told = "; ".join(f"{record['allocator']} {record['interval']}" for record in records
                     if record["allocator"] != subject)
    told = f"{title}, {subject}'s figure divided by that of each allocator: {told}."
    data = {"means": records, "noise": [interval_record(noise)] if noise else []}
    return Chart(f"overall-{measure}", title, told, [vega_lite(layers, data, told, width, 26 * len(records))])


def scatter_chart(result: Result, width: Width = "container") -> Chart | None:
    """Returns a chart of points: each allocator's time and peak memory by the subject's. Lower left is best."""
    subject, same = result["subject"], {"median": 1, "low": 1, "high": 1}
    records = [{**scatter_record(subject, same, same), "own": True}]
    for name in figures.peers(result):
        time, memory = figures.overall(result, name, "time"), figures.overall(result, name, "peak_rss")
        if time and memory:
            records.append(scatter_record(name, time, memory))
    if len(records) < 2:
        return None
    told = "; ".join(f"{record['allocator']} time {record['time_text']}, memory {record['memory_text']}"
                     for record in records)
    text = (f"Each allocator's time and peak memory divided by {subject}'s; the least of both is at the lower left: "
            f"{told}.")
    least_widths = LEAST_WIDTHS if width == "container" else (width,)
    return Chart("scatter", "Time and peak memory of each allocator", text, [
        draw_scatter(result, records, text, width, least, 340 if least < 400 else 420) for least in least_widths])


def scatter_record(name: str, time: Ratio, memory: Ratio) -> Record:
    """Returns the record of a point."""
    def turned(figure: Ratio, key: str) -> Record:
        """Returns the allocator's figure divided by the subject's: the inverse of the result's ratio."""
        return {key: 1 / figure["median"], f"{key}_low": 1 / figure["high"], f"{key}_high": 1 / figure["low"],
                f"{key}_text": figures.ratio_text(1 / figure["median"])}
    return {"allocator": name, **turned(time, "time"), **turned(memory, "memory")}


def draw_scatter(result: Result, records: list[Record], text: str, width: Width, least_width: int,
                 height: int) -> dict[str, Any]:
    """Returns the chart. least_width: the least width at which it is drawn. Names that fit there fit at any width."""
    subject = result["subject"]
    x_limits = domain([record[key] for record in records for key in ("time_low", "time_high")])
    y_limits = domain([record[key] for record in records for key in ("memory_low", "memory_high")])
    across = ratio_axis(x_limits, f"time, {subject} = 1; left is faster", 5 if least_width < 400 else 8)
    upward = ratio_axis(y_limits, f"peak memory, {subject} = 1; down is less")
    inner = least_width - 60    # without the axis and the margin
    def x_of(ratio: float) -> float:
        return labels.at(ratio, x_limits, inner)

    def y_of(ratio: float) -> float:
        return height - labels.at(ratio, y_limits, height)

    def placed(record: Record, box: labels.Box) -> Record:
        end = box.closest(x_of(record["time"]), y_of(record["memory"]))
        return {**record, "near": box.near,
                "label_x": labels.value(box.x, x_limits, inner),
                "label_y": labels.value(height - box.y, y_limits, height),
                "end_x": labels.value(end[0], x_limits, inner),
                "end_y": labels.value(height - end[1], y_limits, height)}

    # Names keep clear of the lines at 1 and of the intervals.
    lines = [labels.line(x_of(1), 0, x_of(1), height), labels.line(0, y_of(1), inner, y_of(1))]
    for record in records:
        place = x_of(record["time"]), y_of(record["memory"])
        lines += [labels.line(x_of(record["time_low"]), place[1], x_of(record["time_high"]), place[1]),
                  labels.line(place[0], y_of(record["memory_low"]), place[0], y_of(record["memory_high"]))]
    points = [(record["allocator"], x_of(record["time"]), y_of(record["memory"])) for record in records]
    records = [placed(record, box)
               for record, box in zip_strict(records, labels.place(points, lines, inner, height))]

    data = alt.NamedData("points")
    x, y = alt.X("time:Q", **across), alt.Y("memory:Q", **upward)
    label_x, label_y = alt.X("label_x:Q", **across), alt.Y("label_y:Q", **upward)
    base = alt.Chart(data).encode(
        color=alt.Color("allocator:N", scale=color_scale(result), legend=None),
        tooltip=[alt.Tooltip("allocator:N"), alt.Tooltip("time_text:N", title="time"),
                 alt.Tooltip("memory_text:N", title="peak memory")])
    leader = alt.Chart(data).transform_filter("!datum.near").mark_rule(color=GREY, strokeWidth=0.8)
    layers = [
        one_rule("x"), one_rule("y"), leader.encode(x=x, y=y, x2="end_x:Q", y2="end_y:Q"),
        base.mark_rule(opacity=0.5).encode(x=alt.X("time_low:Q", **across), x2="time_high:Q", y=y),
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("memory_low:Q", **upward), y2="memory_high:Q"),
        base.mark_point(filled=True, opacity=1).encode(
            x=x, y=y, shape=alt.Shape("allocator:N", scale=shape_scale(result), legend=None),
            size=alt.when("datum.own").then(alt.value(240)).otherwise(alt.value(110))),
        alt.Chart(data).mark_text(fontSize=labels.FONT_SIZE, fontWeight=600).encode(
            x=label_x, y=label_y, text="allocator:N")]
    return vega_lite(layers, {"points": records}, text, width, height)


# ---- Row by row ----

def rows_chart(result: Result, measure: str, group: str, width: Width = "container",
               legend: alt.Legend | None = None) -> Chart | None:
    """Returns a chart with a line for each row: the ratio to each peer, grey for a tie. The chosen peers, or else
    the best peer of the row, have their intervals. A grey bar shows the noise of the row."""
    subject = result["subject"]
    records = [row_record(result, row, name, measure, figure) for row in figures.rows_of(result, group)
               for name in figures.peers(result) if (figure := figures.compared(result, row, name, measure))]
    if not records:
        return None
    mark_first(result, records, measure)
    first = {record["row"]: record["ratio"] for record in records if record["first"]}
    order = sorted(first, key=lambda row: first[row])
    noise = [{"row": row, **interval_record(figure)} for row in order
             if (figure := figures.compared(result, row, figures.again(result), measure))]
    limits = domain([record["ratio"] for record in records]
                    + [record[key] for record in records if record["first"] for key in ("low", "high")])
    name, _, _ = figures.MEASURES[measure]
    axis = ratio_axis(limits, ratio_title(subject), anchor="end")
    y = alt.Y("row:N", title=None, scale=alt.Scale(domain=order), axis=alt.Axis(grid=True))
    color = alt.when("datum.verdict == 'tie'").then(alt.value(GREY)).otherwise(
        alt.Color("allocator:N", scale=color_scale(result), legend=legend))
    base = alt.Chart(alt.NamedData("ratios")).encode(
        y=y, color=color,
        tooltip=[alt.Tooltip("row:N"), alt.Tooltip("allocator:N"), alt.Tooltip("interval:N", title="ratio"),
                 alt.Tooltip("word:N", title=f"{subject} takes"), alt.Tooltip("own:N", title=f"{subject}'s"),
                 alt.Tooltip("other:N", title="the allocator's")])
    layers = [one_rule(),
              base.mark_rule(strokeWidth=2, clip=True).encode(
                  x=alt.X("low:Q", **axis), x2="high:Q",
                  opacity=alt.when(CHOSEN).then(alt.value(0.9)).otherwise(alt.value(0))),
              base.mark_point(filled=True).encode(
                  x=alt.X("ratio:Q", **axis), shape=alt.Shape("allocator:N", scale=shape_scale(result), legend=legend),
                  opacity=alt.when(CHOSEN).then(alt.value(1)).otherwise(alt.value(0.4)),
                  size=alt.when(CHOSEN).then(alt.value(85)).otherwise(alt.value(26)))]
    if noise:
        bar = alt.Chart(alt.NamedData("noise")).mark_bar(color=GREY, opacity=0.28, height=11, clip=True)
        layers.insert(0, bar.encode(
            y=y, x=alt.X("low:Q", **axis), x2="high:Q",
            tooltip=[alt.Tooltip("row:N"), alt.Tooltip("interval:N", title="noise (A/A)")]))
    text = rows_text(subject, name, records, order)
    chosen = [alt.VariableParameter(name="chosen", value=[])]
    return Chart(f"rows-{measure}-{group}", f"{capital(name)}, {group}s", text, [vega_lite(
        layers, {"ratios": records, "noise": noise}, text, width, 22 * len(order), params=chosen)])


def row_record(result: Result, row: str, allocator: str, measure: str, figure: Ratio) -> Record:
    """Returns the record of a ratio."""
    _, key, unit = figures.MEASURES[measure]
    own, other = (figures.entry(result, row, name).get(key) for name in (result["subject"], allocator))
    return {"row": row, "allocator": allocator, **interval_record(figure), "verdict": figure["verdict"],
            "word": figures.VERDICTS[figure["verdict"]], "first": False,
            "own": figures.with_unit(own, unit) if own is not None else "not measured",
            "other": figures.with_unit(other, unit) if other is not None else "not measured"}


def mark_first(result: Result, records: list[Record], measure: str) -> None:
    """Marks the best peer of each row and puts it last, so that it is drawn on top. It is the peer that the result
    names, or the one with the highest ratio if the result names none."""
    best: dict[str, tuple[float, Record]] = {}
    for record in records:
        named = (result["summary"]["best"].get(record["row"], {}).get(measure) or {}).get("allocator")
        if record["allocator"] == named or record["row"] not in best or record["ratio"] > best[record["row"]][0]:
            best[record["row"]] = (math.inf if record["allocator"] == named else record["ratio"], record)
    for _, record in best.values():
        record["first"] = True
    records.sort(key=lambda record: record["first"])


def rows_text(subject: str, name: str, records: list[Record], order: Sequence[str]) -> str:
    """Returns the description of a chart of rows."""
    first = [record for record in records if record["first"]]
    counts = {verdict: sum(record["verdict"] == verdict for record in first) for verdict in figures.VERDICTS}
    rows = plural(len(order), "row")
    return (f"{capital(name)} of {subject} divided by that of each peer, in {rows}. Against the best peer of "
            f"the row {subject} takes less in {counts['lower']}, more in {counts['higher']}, and "
            f"{counts['tie']} are ties. The rows from the lowest ratio to the highest: {', '.join(order)}. "
            "The table of all rows holds the figures.")
