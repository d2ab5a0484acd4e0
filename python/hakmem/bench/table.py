"""Prints a result as tables, with colors if the terminal has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from hakmem.bench.allocators import again
from hakmem.screen import Console, Table, Text

if TYPE_CHECKING:
    from hakmem.records import Entry, Ratio, Result

# {row: {allocator: (number, text)}}
Cells = dict[str, dict[str, tuple[float, str]]]
STYLES = {"lower": "green", "higher": "red", "tie": "dim"}
ROW_WIDTH = 25
SHORT = {"crashed": "crashed", "failed": "failed", "timeout": "too long", "refused": "refused"}
MEANS = {"time_programs": "time, programs", "time": "time, all", "cpu": "CPU time", "peak_rss": "peak RSS",
         "private": "private", "mean_rss": "mean RSS"}


# ---- Figures as texts ----


def seconds_text(seconds: float) -> str:
    """Returns seconds as a text with a unit."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def memory_text(kib: float) -> str:
    """Returns KiB as a text in MiB."""
    return f"{kib / 1024:,.0f} MiB" if kib >= 100 * 1024 else f"{kib / 1024:.3g} MiB"


def kib_text(number: float) -> str:
    """Returns bytes as a text in KiB."""
    return f"{number / 1024:,.0f} KiB"


def ratio_text(ratio: Ratio) -> Text:
    """Returns a ratio as a colored text, with = for a tie."""
    text = f"{ratio['median']:.2f}" if ratio["median"] < 10 else f"{ratio['median']:.3g}"
    return Text(text + ("=" if ratio["verdict"] == "tie" else " "), style=STYLES[ratio["verdict"]])


def interval_text(mean: Ratio) -> Text:
    """Returns a mean and its interval as a colored text."""
    style = STYLES["lower"] if mean["high"] < 1 else STYLES["higher"] if mean["low"] > 1 else STYLES["tie"]
    return Text(f"{mean['median']:.3f} ({mean['low']:.2f}–{mean['high']:.2f})", style=style)


def status_text(entry: Entry, detail: str) -> Text:
    """Returns how an allocator failed, short enough for a cell."""
    status = SHORT[entry["status"]]
    # Only the name of a signal is short enough for a cell.
    return Text(f"{status} ({detail})" if detail and entry["status"] == "crashed" else status, style="bold red")


def failures(result: Result) -> dict[tuple[str, str], tuple[str, str]]:
    """Returns {(row, allocator): (status, detail)} of the first failure of each."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for sample in result["samples"]:
        if sample["status"] != "ok":
            found.setdefault((sample["row"], sample["allocator"]), (sample["status"], sample.get("detail") or ""))
    return found


# ---- Tables ----


def slices(names: Sequence[str], console: Console, width: int, first: int = ROW_WIDTH) -> list[Sequence[str]]:
    """Splits the names into groups of as many columns as fit into the terminal."""
    most = max(1, (console.width - first) // (width + 2))
    return [names[at:at + most] for at in range(0, len(names), most)]


def print_table(console: Console, title: str, head: Sequence[str], lines: Iterable[Iterable[str | Text]],
                left: Collection[int] = (0,)) -> None:
    """Prints a table. left: the columns of words; columns of figures are aligned at the right."""
    table = Table()
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place in left else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)
    console.print()


def print_ratios(console: Console, result: Result, figure: str, key: str, title: str,
                 text: Callable[[float], str]) -> None:
    """Prints the subject's own figure in each row, its ratio to each allocator and its ratio to the best peer."""
    subject, summary, failed = result["subject"], result["summary"], failures(result)
    others = [name for name in result["allocators"] if name != subject]
    if not any(figure in entry.get("ratios", {}) for entries in summary["rows"].values() for entry in entries.values()):
        return
    width = max(8, *(len(name) for name in others))
    for part in slices(others, console, width, ROW_WIDTH + 24):
        lines = []
        for row, entries in summary["rows"].items():
            own = entries.get(subject, {})
            cells = [text(own[key]) if key in own else status_cell(own, failed, row, subject)]
            for name in part:
                entry = entries.get(name, {})
                ratio = entry.get("ratios", {}).get(figure)
                cells.append(ratio_text(ratio) if ratio else status_cell(entry, failed, row, name))
            best = summary["best"].get(row, {}).get(figure)
            lines.append([row, *cells, f"{best['ratio']:.2f} {best['allocator']}" if best else "-"])
        print_table(console, title, ["", subject, *part, "best peer"], lines)


def status_cell(entry: Entry, failed: dict[tuple[str, str], tuple[str, str]], row: str, name: str) -> str | Text:
    """Returns the cell of an allocator without a ratio: its failure, or "-"."""
    if not entry or entry["status"] == "ok":
        return "-"
    return status_text(entry, failed[row, name][1])


def print_overall(console: Console, result: Result) -> None:
    """Prints the geometric means over the rows. Those over the real programs come first."""
    overall = {name: means for name, means in result["summary"]["overall"].items() if means}
    if not overall:
        return
    lines = [[name, *(interval_text(means[mean]) if means.get(mean) else "-" for mean in MEANS),
              *(str(means[mean]["rows"]) if means.get(mean) else "-" for mean in ("time_programs", "time"))]
             for name, means in overall.items()]
    print_table(console, f"{result['subject']} divided by the others: geometric means over the rows; below 1 it takes "
                "less", ["", *MEANS.values(), "programs", "rows"], lines)


def print_figures(console: Console, result: Result, title: str, cells: Cells, least: bool = True) -> None:
    """Prints a table of {row: {allocator: (number, text)}}, with each row's least (or most) in bold."""
    names = [name for name in result["allocators"] if any(name in row for row in cells.values())]
    if not names:
        return
    width = max(9, *(len(name) for name in names))
    for part in slices(names, console, width):
        lines = []
        for row, figures in cells.items():
            best = (min if least else max)(number for number, _ in figures.values())
            lines.append([row, *(Text(figures[name][1], style="bold" if figures[name][0] == best else "")
                                 if name in figures else "-" for name in part)])
        print_table(console, title, ["", *part], lines)


def calls_cells(result: Result) -> Cells:
    """Returns the cells of the table of system calls."""
    cells: Cells = {}
    for entry in result.get("calls") or []:
        if entry["memory_total"] is not None:
            total = entry["memory_total"]
            cells.setdefault(entry["row"], {})[entry["allocator"]] = (total, f"{total:,}")
    return cells


def median_cells(result: Result, key: str, text: Callable[[float], str]) -> Cells:
    """Returns the cells of the table of one median."""
    cells: Cells = {}
    for row, entries in result["summary"]["rows"].items():
        figures = {name: (entry[key], text(entry[key])) for name, entry in entries.items() if key in entry}
        if figures:
            cells[row] = figures
    return cells


def noise_line(result: Result) -> str | None:
    """Returns a sentence on how far two copies of one library differ. A real difference must be larger."""
    copy = again(result["subject"])
    ratios = [entries[copy]["ratios"]["time"]["median"] for entries in result["summary"]["rows"].values()
              if "time" in entries.get(copy, {}).get("ratios", {})]
    mean = result["summary"]["overall"].get(copy, {}).get("time")
    if not ratios or not mean:
        return None
    if len(ratios) == 1:
        return f"Noise: {result['subject']} divided by its own copy, {copy}: {ratios[0]:.3f} in time."
    return (f"Noise: {result['subject']} divided by its own copy, {copy}: single rows from {min(ratios):.3f} to "
            f"{max(ratios):.3f} in time, their geometric mean {mean['median']:.3f}.")


def print_notes(console: Console, result: Result) -> None:
    """Prints notes on noise, ties, failures and rows that did not run."""
    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    noise = noise_line(result)
    if noise:
        say(noise)
    say("A ratio is the median of the rounds' ratios. = marks a tie: the 95 % interval of the ratio contains 1.")
    if any(number == 1 for number in rounds_by_row(result).values()):
        say("A single round shows nothing of the spread: its rows count as ties, and intervals of means are too narrow."
            )
    failed = failures(result)
    for (row, name), (status, detail) in failed.items():
        say(f"{row} on {name}: {SHORT[status]}{': ' + detail if detail else ''}")
    if failed:
        say("A row is left out of the means of an allocator that did not complete it.")
    for entry in result.get("calls") or []:
        if entry["memory_total"] is None:
            say(f"{entry['row']} on {entry['allocator']}: system calls not counted: {entry.get('detail', '')}")
    for row, reason in (result.get("not_run") or {}).items():
        say(f"{row}: not run: {reason}")


def rounds_by_row(result: Result) -> dict[str, int]:
    """Returns {row: number of rounds}."""
    counts: dict[str, int] = {}
    for sample in result["samples"]:
        counts[sample["row"]] = max(counts.get(sample["row"], 0), sample["round"] + 1)
    return counts


def rounds_text(result: Result) -> str:
    """Returns the number of rounds as a text."""
    counts = rounds_by_row(result).values()
    low, high = min(counts, default=0), max(counts, default=0)
    if low != high:
        return f"{low} to {high} rounds"
    return "1 round" if low == 1 else f"{low} rounds"


def print_result(console: Console, result: Result) -> None:
    """Prints all tables of a result."""
    machine = result["machine"]
    console.print(Text(f"{len(result['rows'])} rows, {len(result['allocators'])} allocators, {rounds_text(result)}; "
                       f"{result['date'][:16].replace('T', ' ')}, commit {result['commit'] or 'unknown'}; "
                       f"{machine.get('cpu')}, {machine.get('cpus')} CPUs, {machine.get('libc')}"), soft_wrap=True)
    console.print()
    print_overall(console, result)
    subject = result["subject"]
    print_ratios(console, result, "time", "time_s",
                 f"Time of {subject}, and divided by that of the others; below 1 is less", seconds_text)
    print_ratios(console, result, "peak_rss", "peak_rss_kib",
                 f"Peak RSS of {subject}, and divided by that of the others", memory_text)
    print_ratios(console, result, "private", "peak_private_kib",
                 f"Private dirty memory of {subject} at the peak, and divided by that of the others (first round)",
                 memory_text)
    print_ratios(console, result, "mean_rss", "mean_rss_kib",
                 f"RSS of {subject}, averaged over time, and divided by that of the others", memory_text)
    print_figures(console, result, "RSS when all is freed and the program has idled",
                  median_cells(result, "idle_rss_kib", memory_text))
    print_figures(console, result, "Private dirty memory then", median_cells(result, "idle_private_kib", memory_text))
    print_figures(console, result, "RSS that a thread holds, with its live blocks",
                  median_cells(result, "thread_held_bytes", kib_text))
    print_figures(console, result, "The same, when all threads have slept",
                  median_cells(result, "thread_later_bytes", kib_text))
    print_figures(console, result, "Part of RSS on huge pages",
                  median_cells(result, "huge_percent", lambda percent: f"{percent:.0f} %"), least=False)
    print_figures(console, result, "System calls for memory", calls_cells(result))
    print_notes(console, result)
