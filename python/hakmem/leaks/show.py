"""Shows a Report as text, as JSON and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hakmem.clean import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hakmem.leaks.report import Report, Site

FRAMES_SHOWN = 16


def amount(pair: Sequence[int]) -> str:
    """Returns (blocks, bytes) or an Amount in words."""
    blocks, size, asked = (*pair, pair[1])[:3]
    rounded = f" ({asked:,} asked for)" if asked != size else ""
    return f"{size:,} byte{'s' * (size != 1)}{rounded} in {blocks:,} block{'s' * (blocks != 1)}"


def summary(report: Report) -> list[str]:
    """Returns the lines that every report has."""
    lines = [f"{report.command} (process {report.pid}) {report.ending}"]
    if report.leaks:
        lines.append(f"lost: {amount(report.lost)}" + (f", and {amount(report.behind)} that only lost blocks point to"
                                                       if report.behind[0] else ""))
    else:
        lines.append("nothing is lost")
    shown = any(site.reachable[0] for site in report.sites)
    lines.append(f"still reachable: {amount(report.reachable)}" +
                 (", listed by --reachable" if report.reachable[0] and not shown else ""))
    lines += [f"suppressed: {amount((one.blocks, one.bytes))} by {one.name} ({one.place})" for one in report.suppressed]
    return lines


def kind_of(site: Site) -> str:
    """Returns in words how many of a site's blocks are lost, behind lost blocks, or reachable."""
    parts = [f"{amount(pair)} {word}" for pair, word in
             ((site.lost, "lost"), (site.behind, "behind lost blocks"), (site.reachable, "still reachable")) if pair[0]]
    return ", ".join(parts)


def text_of(report: Report, number: int) -> list[str]:
    """Returns the report for a terminal or a log."""
    lines = [f"hakmem leaks: {line}" for line in summary(report)]
    for site in report.sites[:number]:
        under = f" under {', '.join(f'{key}={value}' for key, value in site.labels)}" if site.labels else ""
        lines += ["", f"{kind_of(site)}, allocated{under} at:"]
        lines += [f"    {frame.name}" + (f"  {where}" if (where := frame.place()) and where != frame.name else "")
                  for frame in site.frames[:FRAMES_SHOWN]] or ["    (no stack)"]
        if len(site.frames) > FRAMES_SHOWN:
            lines.append(f"    and {len(site.frames) - FRAMES_SHOWN} more")
    if len(report.sites) > number:
        lines += ["", f"and {len(report.sites) - number:,} more sites (-n shows more)"]
    return lines


def data_of(report: Report) -> dict[str, object]:
    """Returns the report as values for JSON."""
    def pair(one: Sequence[int]) -> dict[str, int]:
        return dict(zip(("blocks", "bytes", "asked"), one))

    return {
        "process": report.pid, "command": report.command, "ending": report.ending, "leaks": report.leaks,
        "lost": pair(report.lost), "behind_lost": pair(report.behind), "reachable": pair(report.reachable),
        "suppressed": [{"name": one.name, "place": one.place, **pair((one.blocks, one.bytes))}
                       for one in report.suppressed], "notes": report.notes,
        "sites": [{
            "lost": pair(site.lost), "behind_lost": pair(site.behind), "reachable": pair(site.reachable),
            "labels": dict(site.labels),
            "frames": [{"name": frame.name, "file": frame.file, "line": frame.line, "module": frame.module}
                       for frame in site.frames]
        } for site in report.sites]
    }


def markdown_of(report: Report, number: int) -> list[str]:
    """Returns the report for a GitHub summary."""
    from hakmem.markdown import cell, table

    head = "Leaks" if report.leaks else "No leaks"
    lines = [f"### {head}: `{cell(report.command)}`", "", *(f"- {cell(line)}" for line in summary(report)), ""]
    rows = [(f"{site.lost[1] + site.behind[1]:,}", f"{site.lost[0] + site.behind[0]:,}",
             site.frames[0].name if site.frames else "(no stack)",
             " < ".join(frame.name for frame in site.frames[1:4]), site.frames[0].place() if site.frames else "")
            for site in report.sites[:number] if site.lost[0] + site.behind[0]]
    if rows:
        lines += table(("bytes", "blocks", "allocated in", "called by", "where"), rows, right=2)
    return [clean(line) for line in lines]
