"""Figures and the head of the screen as rich text."""

import time

from rich.text import Text

# Part -> its name and its color: in the bar, its key, and the page of `hakmem serve`.
PARTS = {
    "live": ("live", "#2f9e44"), "cached": ("cached", "#1c7ed6"), "free_in_slab": ("free in slab", "#f59f00"),
    "retained": ("retained", "#e8590c"), "metadata": ("metadata", "#9c36b5"), "other": ("other", "#868e96"),
}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count):
    """Bytes in three figures or so: 17.3 MiB."""
    value, unit = float(abs(count)), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    text = f"{value:.0f}" if unit == 0 or value >= 99.95 else f"{value:.1f}"
    return f"{'-' if count < 0 else ''}{text} {UNITS[unit]}"


def rate_text(value):
    """Events a second."""
    return "-" if value is None else f"{value:,.0f}/s" if value >= 9.95 or value == 0 else f"{value:.1f}/s"


def bar(parts, width):
    """The parts as a bar of `width` cells; what is not nothing has a cell."""
    total = sum(parts.values())
    text = Text(no_wrap=True)
    if total == 0 or width <= 0:
        return text
    cells = {name: max(int(size * width / total), 1) if size else 0 for name, size in parts.items()}
    largest = max(cells, key=cells.get)
    cells[largest] = max(cells[largest] + width - sum(cells.values()), 0)
    for name, count in cells.items():
        text.append("█" * count, style=PARTS[name][1])
    return text


def key(parts):
    """What the colors of the bar mean, and how much there is."""
    text = Text()
    total = sum(parts.values()) or 1
    for name, size in parts.items():
        text.append("■ ", style=PARTS[name][1])
        text.append(f"{PARTS[name][0]} {bytes_text(size)} {size / total:.0%}  ")
    text.rstrip()
    return text


def title(sample, note=""):
    """Whose picture this is, and of when."""
    shot = sample.shot
    text = Text(f"{shot.command} {shot.pid}", style="bold")
    text.append(f"  HAKMEM {shot.version}  {time.strftime('%H:%M:%S', time.localtime(shot.time))}", style="not bold")
    if note:
        text.append("  ")
        text.append(note, style="bold red" if note.startswith("ended") else "bold yellow")
    return text


def memory_line(sample):
    totals = sample.shot.totals
    text = Text("RSS ", style="bold")
    text.append(bytes_text(sample.rss))
    text.append(f"  mapped by HAKMEM {bytes_text(totals.mapped)}, purged of it {bytes_text(totals.purged)}, "
                f"footprint's peak {bytes_text(totals.footprint_peak)}, {totals.superslabs:,} SuperSlabs, "
                f"{totals.live_threads:,} threads", style="not bold")
    return text


def rates_line(found, names):
    """What happened a second; `names` are sample.RATES."""
    if found is None:
        return Text("rates: after the next look", style="dim")
    text = Text()
    for name, called in names.items():
        text.append(f"{called} {rate_text(found.counters[name])}   ")
    text.append(f"faults {rate_text(found.minor_faults)} soft, {rate_text(found.major_faults)} hard   ")
    text.append(f"RSS {'+' if found.rss >= 0 else ''}{bytes_text(found.rss)}/s")
    return text
