"""The table of `hakmem compare`: one program, a line an allocator, and above it who is fastest and who is smallest."""

from rich.text import Text

from hakmem.bench import statistics
from hakmem.bench.allocators import again
from hakmem.bench.table import (SHORT, STYLES, calls_cells, failures, memory_text, print_notes, print_table,
                                rounds_text, seconds_text)


def leader(entries, names, key):
    standing = [name for name in names if key in entries.get(name, {})]
    return min(standing, key=lambda name: entries[name][key]) if standing else None


def headline(result, row, figure, word, text):
    """Who has the least of a figure, and how the subject stands to it or to the next."""
    subject, entries = result["subject"], result["summary"]["rows"][row]
    key = statistics.FIGURES[figure]
    names = [name for name in result["allocators"] if name != again(subject)]
    best = leader(entries, names, key)
    if best is None:
        return None
    line = f"{word}: {best} ({text(entries[best][key])})"
    rival = leader(entries, [name for name in names if name != subject], key) if best == subject else best
    ratio = entries.get(rival, {}).get("ratios", {}).get(figure) if rival else None
    if ratio is None:
        return line
    if ratio["rounds"] < 2:
        return f"{line}; {subject} by {rival} is {ratio['median']:.2f} in a single round"
    shown = f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
    if ratio["verdict"] == "tie":
        return f"{line}; {subject} by {rival} is {shown}: a tie"
    return f"{line}; {subject} takes {shown} of what {rival} takes"


def ratio_cell(entry, figure):
    ratio = entry.get("ratios", {}).get(figure)
    if ratio is None:
        return "-"
    tie = "=" if ratio["verdict"] == "tie" else ""
    return Text(f"{ratio['median']:.2f}{tie} ({ratio['low']:.2f}–{ratio['high']:.2f})", style=STYLES[ratio["verdict"]])


def print_comparison(console, result):
    (row,) = result["rows"]
    subject, entries = result["subject"], result["summary"]["rows"][row]
    for figure, word, text in (("time", "Fastest", seconds_text), ("peak_rss", "Smallest", memory_text)):
        line = headline(result, row, figure, word, text)
        if line:
            console.print(Text(line, style="bold"), soft_wrap=True)
    console.print()
    counted, failed = calls_cells(result).get(row, {}), failures(result)
    columns = (("wall", "time_s", seconds_text), ("CPU", "cpu_s", seconds_text),
               ("peak RSS", "peak_rss_kib", memory_text), ("mean RSS", "mean_rss_kib", memory_text),
               ("faults", "soft_faults", lambda number: f"{number:,.0f}"))
    lines = []
    for name in sorted(entries, key=lambda name: entries[name].get("time_s", float("inf"))):
        entry = entries[name]
        if entry["status"] != "ok":
            detail = failed[row, name][1]
            told = f"{SHORT[entry['status']]} ({detail.partition(':')[0]})" if detail else SHORT[entry["status"]]
            lines.append([name, Text(told, style="bold red")])
            continue
        figures = [text(entry[key]) if key in entry else "-" for _, key, text in columns]
        lines.append([name, *figures, counted[name][1] if name in counted else "-", ratio_cell(entry, "time"),
                      ratio_cell(entry, "peak_rss")])
    head = ["", *(title for title, _, _ in columns), "memory calls", f"time of {subject}", f"peak RSS of {subject}"]
    print_table(console, f"{result['rows'][row]['command']}: medians of {rounds_text(result)}; at the right "
                f"{subject}'s figure by this one's", head, lines)
    print_notes(console, result)
