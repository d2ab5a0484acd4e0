"""Figures and the head of the screen, as texts with styles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hakmem.live.resident import PARTS
from hakmem.screen import Text, spark
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.live.sample import Rates, Sample


def rate_text(value: float | None) -> str:
    """Returns events per second as a text."""
    return "-" if value is None else f"{value:,.0f}/s" if value >= 9.95 or value == 0 else f"{value:.1f}/s"


def bar(parts: dict[str, int], width: int) -> Text:
    """Returns the parts as a bar of `width` cells. A part above 0 has at least one cell."""
    total = sum(parts.values())
    text = Text()
    if total == 0 or width <= 0:
        return text
    cells = {name: max(int(size * width / total), 1) if size else 0 for name, size in parts.items()}
    largest = max(cells, key=lambda name: cells[name])
    cells[largest] = max(cells[largest] + width - sum(cells.values()), 0)
    for name, count in cells.items():
        text.append("█" * count, style=PARTS[name][1])
    return text


def key(parts: dict[str, int]) -> Text:
    """Returns the key of the bar: what the colors mean, and how much each part is."""
    text = Text()
    total = sum(parts.values()) or 1
    for name, size in parts.items():
        text.append("■ ", style=PARTS[name][1])
        text.append(f"{PARTS[name][0]} {bytes_column(size)} {size / total:.0%}  ")
    text.rstrip()
    return text


def title(sample: Sample, note: str = "") -> Text:
    """Returns the title: which process, at what time."""
    shot = sample.shot
    text = Text(f"{shot.command} {shot.pid}", style="bold")
    text.append(f"  HAKMEM {shot.version}  {time.strftime('%H:%M:%S', time.localtime(shot.time))}", style="")
    if note:
        text.append("  ")
        text.append(note, style="bold red" if note.startswith("ended") else "bold yellow")
    return text


def memory_line(sample: Sample) -> Text:
    """Returns the line of totals."""
    totals = sample.shot.totals
    text = Text("RSS ", style="bold")
    text.append(bytes_column(sample.rss))
    text.append(f"  mapped by HAKMEM {bytes_column(totals.mapped)}, purged of it {bytes_column(totals.purged)}, "
                f"footprint's peak {bytes_column(totals.footprint_peak)}, {totals.superslabs:,} SuperSlabs, "
                f"{totals.live_threads:,} threads", style="")
    return text


def history_line(history: Sequence[tuple[int, int]], width: int) -> Text:
    """Returns RSS and live bytes of the looks so far. history: pairs. Takes two lines if one is too short."""
    text = Text()
    if len(history) < 2:
        return text
    one_line = width >= 110
    room = (width // 2 if one_line else width) - 34
    for place, (name, color) in enumerate((("RSS ", "#868e96"), ("live", PARTS["live"][1]))):
        values = [pair[place] for pair in history]
        shown = values[-max(room, 8):]
        text.append(("   " if one_line else "\n") if place else "", style="")
        text.append(f"{name} ", style="bold")
        text.append(spark(values, max(room, 8)), style=color)
        text.append(f" {bytes_column(min(shown))} to {bytes_column(max(shown))}", style="")
    return text


def rates_line(found: Rates | None, names: dict[str, str]) -> Text:
    """Returns the rates as a line. names: sample.RATES."""
    if found is None:
        return Text("rates: after the next look", style="dim")
    text = Text()
    for name, called in names.items():
        text.append(f"{called} {rate_text(found.counters[name])}   ")
    text.append(f"faults {rate_text(found.minor_faults)} soft, {rate_text(found.major_faults)} hard   ")
    text.append(f"RSS {'+' if found.rss >= 0 else ''}{bytes_column(found.rss)}/s")
    return text
