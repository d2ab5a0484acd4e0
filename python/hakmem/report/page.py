"""Writes a result as one self-contained HTML page: text, tables, charts, the code that draws them, raw data."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import altair
import vl_convert

from hakmem.compat import zip_strict
from hakmem.document import embedded, read, rendered
from hakmem.phrases import capital
from hakmem.report import charts, figures, sentences
from hakmem.report.result import check_result

if TYPE_CHECKING:
    from hakmem.records import Result

FOLDER = Path(__file__).with_name("page")
OVERALL_CHARTS = ("time", "time_programs", "peak_rss", "mean_rss")
ROW_MEASURES = ("time", "peak_rss", "mean_rss")
# The shapes of the charts' points for the legend, centered at 0 and 10 wide.
PATHS = {
    "circle": "M5 0A5 5 0 1 1-5 0A5 5 0 1 1 5 0Z", "square": "M-4.5-4.5H4.5V4.5H-4.5Z", "diamond": "M0-6L5 0L0 6L-5 0Z",
    "triangle-up": "M0-5.5L5.5 4.5H-5.5Z", "triangle-down": "M0 5.5L5.5-4.5H-5.5Z",
    "cross": "M-1.8-5.5H1.8V-1.8H5.5V1.8H1.8V5.5H-1.8V1.8H-5.5V-1.8H-1.8Z",
}


def write_page(result: Result, path: str | Path) -> None:
    """Writes the page; raises ResultError if the result is wrong."""
    check_result(result)
    Path(path).write_bytes(page(result, Path(path).stem).encode())


def page(result: Result, stem: str) -> str:
    """Returns the page."""
    drawn = all_charts(result)
    noise = figures.overall(result, figures.again(result), "time")
    return rendered(
        FOLDER / "page.html", f"{result['subject']} measured, {sentences.date(result)}",
        read(FOLDER / "page.css") + colors(result), [library(), read(FOLDER / "page.js")], "data: blob:",
        headline=sentences.headline(result), lead=sentences.lead(result), facts=sentences.facts(result),
        subject=result["subject"], tiles=sentences.tiles(result), noise=figures.interval_text(noise) if noise else "",
        overall_charts=drawn["overall"], overall_table=figures.overall_table(result),
        scatter=drawn["scatter"], row_groups=drawn["rows"], legend=legend(result), failures=figures.failures(result),
        plain_sections=plain_sections(result), row_tables=row_tables(result), sections=sections(result, drawn),
        method=sentences.method(result), command=result["command"], options=sentences.listing(result["options"]),
        machine=[(name, sentences.machine_text(value)) for name, value in sentences.listing(result["machine"])],
        about_table=about_table(result),
        allocator_table=allocator_table(result),
        specs=embedded(specs(result, drawn)), **raw_data(result, stem))


class Drawn(TypedDict):
    """The charts of a page. rows: the sections, each with its id, title, text and charts."""

    overall: list[charts.Chart]
    scatter: charts.Chart | None
    rows: list[Section]


class Section(TypedDict):
    """A section with charts of rows."""

    id: str
    title: str
    text: str
    charts: list[charts.Chart]


# ---- Charts ----

def all_charts(result: Result) -> Drawn:
    """Returns all charts of the page."""
    groups = list(dict.fromkeys(row["group"] for row in result["rows"].values()))
    rows: list[Section] = []
    for measure in ROW_MEASURES:
        found = [chart for group in groups if (chart := charts.rows_chart(result, measure, group))]
        if found:
            name = figures.MEASURES[measure][0]
            rows.append({"id": measure, "title": f"{capital(name)}, row by row", "charts": found,
                         "text": sentences.row_section(result, measure)})
    return {"overall": [chart for measure in OVERALL_CHARTS if (chart := charts.overall_chart(result, measure))],
            "scatter": charts.scatter_chart(result), "rows": rows}


def specs(result: Result, drawn: Drawn) -> dict[str, object]:
    """Returns the data of the charts for the page's script."""
    every = [*drawn["overall"], *([drawn["scatter"]] if drawn["scatter"] else []),
             *(chart for section in drawn["rows"] for chart in section["charts"])]
    return {"allocators": charts.names(result),
            "specs": {chart.name: chart.sizes for chart in every}}


def legend(result: Result) -> list[dict[str, object]]:
    """Returns the entries of the legend."""
    shapes = charts.shapes(result)
    return [{"name": name, "number": number, "path": PATHS[shapes[number]]}
            for number, name in enumerate(charts.names(result)) if number > 0]


def colors(result: Result) -> str:
    """Returns the style sheet of the allocators' colors."""
    def rules(palette: Sequence[str]) -> str:
        return " ".join(f"--c{number}: {color};" for number, color in enumerate(charts.palette(result, palette)))
    fills = " ".join(f".c{number} {{ fill: var(--c{number}); }}" for number in range(len(charts.names(result))))
    return (f":root {{ {rules(charts.LIGHT)} }}\n"
            f"@media (prefers-color-scheme: dark) {{ :root {{ {rules(charts.DARK)} }} }}\n"
            f"{fills}\n")


@functools.cache
def library() -> str:
    """Returns Vega, Vega-Lite and vega-embed as one script, in the version for which altair writes."""
    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    # Its stub demands a snippet, which it does without.
    bundle: Callable[..., str] = vl_convert.javascript_bundle
    text = bundle(vl_version=version).replace("\r\n", "\n")
    # A script element may contain neither text. Inside JavaScript's strings the backslash changes nothing.
    return re.sub(r"<(?=/script|!--)", r"<\\", text, flags=re.IGNORECASE)


# ---- Tables and data ----

def sections(result: Result, drawn: Drawn) -> list[tuple[str, str]]:
    """Returns (id, title) of each section that the result fills."""
    found = [("overall", "Overall")]
    if drawn["scatter"]:
        found.append(("both", "Time and memory"))
    found += [(section["id"], section["title"].partition(",")[0]) for section in drawn["rows"]]
    found.append(("failures", "Not finished"))
    found += [(section["id"], section["title"]) for section in plain_sections(result)]
    return [*found, ("rows", "All rows"), ("method", "Method"), ("machine", "Machine"), ("raw", "Raw data")]


class Plain(TypedDict):
    """A section that has only a table."""

    id: str
    title: str
    text: str
    table: figures.Table


def plain_sections(result: Result) -> list[Plain]:
    """Returns the sections that have only a table."""
    made = [
        ("idle", "Idle memory",
         "Resident memory after the program has freed everything, waited and made one small call.",
         figures.idle_table(result)),
        ("calls", "System calls", "Counted by strace in one run of each row; the hint on a figure names the calls.",
         figures.calls_table(result)),
        ("instructions", "Instructions", "The same on any machine of this kind, whatever else runs there.",
         figures.instructions_table(result))]
    return [{"id": name, "title": title, "text": f"{text} The least of each row is bold.", "table": table}
            for name, title, text, table in made if table]


def row_tables(result: Result) -> list[dict[str, object]]:
    """Returns the tables of all rows."""
    return [{"title": capital(name), "table": figures.row_table(result, measure)}
            for measure, (name, key, _) in figures.MEASURES.items()
            if measure == "time" or figures.measured(result, measure)
            or any(entry.get(key) is not None for row in result["summary"]["rows"].values() for entry in row.values())]


def about_table(result: Result) -> figures.Table:
    """Returns the table of rows and their commands."""
    table = figures.Table("about", "The rows and their commands",
                          ["Row", "Group", "Threads", "What it does", "Command"])
    for name, row in result["rows"].items():
        threads = row.get("threads")
        table.lines.append([
            figures.Cell(name, name), figures.Cell(row["group"], row["group"]),
            figures.Cell("" if threads is None else str(threads), threads),
            figures.Cell(row.get("about") or "", row.get("about") or "", kind="words"),
            figures.Cell(row["command"], row["command"], kind="words")])
    return table


def allocator_table(result: Result) -> figures.Table:
    """Returns the table of allocators."""
    keys = list(dict.fromkeys(key for about in result["allocators"].values() for key in about))
    table = figures.Table("allocators", "The allocators and where they come from", ["Allocator", *(
        {"sha256": "SHA-256"}.get(key, key.capitalize()) for key in keys)])
    for name, about in result["allocators"].items():
        cells = [figures.value_text(about[key]) if about.get(key) is not None else "" for key in keys]
        table.lines.append([figures.Cell(name, name)] + [
            figures.Cell(f"{text[:12]}…" if key == "sha256" and len(text) > 12 else text, text, hint=text, kind="words")
            for key, text in zip_strict(keys, cells)])
    return table


def raw_data(result: Result, stem: str) -> dict[str, str]:
    """Returns the result as a link to download."""
    packed = gzip.compress(json.dumps(result).encode(), 9, mtime=0)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem) or "result"
    return {"raw_name": f"{name}.json.gz", "raw_size": figures.with_unit(len(packed) / 1024, "KiB"),
            "raw_link": "data:application/gzip;base64," + base64.b64encode(packed).decode()}
