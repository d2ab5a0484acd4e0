"""Medians and tables of what run.py measured. As a program it prints the tables of a result file again."""

import json
import sys
from statistics import median

# What is compared, and whether more of it is better.
RATIOS = {"ops_per_s": True, "wall_s": False, "cpu_s": False, "peak_rss_kib": False, "soft_faults": False}


def ratios_by_round(samples, row, subject, other, figure):
    """The subject's figure by the other's, of each round in which both ran; above 1 is more."""
    values = {}
    for sample in samples:
        if sample["row"] == row and figure in sample:
            values.setdefault(sample["round"], {})[sample["allocator"]] = sample[figure]
    return [pair[subject] / pair[other] for pair in values.values() if subject in pair and pair.get(other)]


def summarize(samples, rows, allocators, subject):
    """{row: {allocator: {figure: median, "ratios": {figure: {median, lowest, highest}}}}}; the ratios are the
    subject's figure by this allocator's, the median of those of each round."""
    summary = {}
    for row in rows:
        summary[row] = {}
        for allocator in allocators:
            own = [s for s in samples if s["row"] == row and s["allocator"] == allocator]
            entry = {}
            for figure in (*RATIOS, "rss_idle_kib"):
                values = [sample[figure] for sample in own if sample.get(figure) is not None]
                if values:
                    entry[figure] = median(values)
            entry["ratios"] = {}
            for figure in RATIOS:
                ratios = ratios_by_round(samples, row, subject, allocator, figure)
                if ratios and allocator != subject:
                    entry["ratios"][figure] = {"median": median(ratios), "lowest": min(ratios), "highest": max(ratios)}
            summary[row][allocator] = entry
    return summary


def format_table(title, header, lines):
    table = [header, *lines]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    text = [title]
    for number, line in enumerate(table):
        cells = (cell.ljust(width) if i == 0 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(line, widths, strict=True)))
        text.append("  ".join(cells).rstrip())
        if number == 0:
            text.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(text) + "\n"


def figure_table(summary, allocators, figure, title, scale=1):
    def cell(value):
        value /= scale
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    lines = [[row] + [cell(entries[a][figure]) if figure in entries.get(a, {}) else "-" for a in allocators]
             for row, entries in summary.items() if any(figure in entry for entry in entries.values())]
    return format_table(title, ["", *allocators], lines) if lines else ""


def ratio_table(summary, allocators, subject, figure, title):
    """One column an allocator, and the worst of them for the subject."""
    others = [allocator for allocator in allocators if allocator != subject]
    worst = min if RATIOS[figure] else max
    lines = []
    for row, entries in summary.items():
        ratios = [entries.get(other, {}).get("ratios", {}).get(figure) for other in others]
        medians = [ratio["median"] for ratio in ratios if ratio]
        if medians:
            cells = [f"{r['median']:.3f} ({r['lowest']:.2f}-{r['highest']:.2f})" if r else "-" for r in ratios]
            lines.append([row, *cells, f"{worst(medians):.3f}"])
    return format_table(title, ["", *others, "worst"], lines) if lines else ""


def format_result(result):
    summary, allocators, subject = result["summary"], result["allocators"], result["subject"]
    names = list(allocators)
    tables = [
        figure_table(summary, names, "ops_per_s", "Thousand operations a second (median)", 1e3),
        ratio_table(summary, names, subject, "ops_per_s",
                    f"Throughput of {subject} by that of ...: median of rounds (lowest-highest); above 1 is faster"),
        ratio_table(summary, names, subject, "cpu_s",
                    f"CPU time, user and system, of {subject} by that of ...; below 1 is less"),
        ratio_table(summary, names, subject, "wall_s", f"Wall time of {subject} by that of ...; below 1 is less"),
        figure_table(summary, names, "peak_rss_kib", "Peak RSS, MiB (median)", 1024),
        ratio_table(summary, names, subject, "peak_rss_kib", f"Peak RSS of {subject} by that of ...; below 1 is less"),
        figure_table(summary, names, "rss_idle_kib", "RSS when all is freed and the program has idled, MiB", 1024),
        figure_table(summary, names, "soft_faults", "Soft page faults (median)"),
    ]
    return "\n".join(table for table in tables if table)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: summary.py RESULT.json")
    with open(sys.argv[1], encoding="utf-8") as file:
        print(format_result(json.load(file)))


if __name__ == "__main__":
    main()
