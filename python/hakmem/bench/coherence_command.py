"""The command `hakmem bench coherence`: what many cores would do to each other's caches, counted on one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from hakmem.bench.cells import best_of, list_of
from hakmem.bench.coherence import CORES, OURS, PATTERNS, PEERS, Count, library_of, measure
from hakmem.bench.table import print_table
from hakmem.screen import Console, Text

FIGURES = ("transfers", "remote", "own", "cold", "locks", "hold", "waits", "atomics", "failed", "calls", "faults",
           "accesses", "cycles")
# {(pattern, cores): {allocator: what a run counted, or None: it took too long}}
Found = dict[tuple[str, int], dict[str, "Count | None"]]


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """Returns a function that refuses a text that is not known."""
    def check(text: str) -> str:
        if text not in known:
            raise ValueError(f"'{text}' is none of {', '.join(known)}")
        return text
    return check


def even_cores(text: str) -> int:
    """Returns a number of cores; raises ValueError if the program does not take it."""
    number = int(text)
    if not 2 <= number <= max(CORES) or number % 2:
        raise ValueError(f"{text} is no even number from 2 to {max(CORES)}")
    return number


def print_figure(console: Console, found: Found, names: Sequence[str], title: str, key: str) -> None:
    """Prints a table of one figure: patterns and cores down, allocators across."""
    table = []
    for (pattern, cores), counts in found.items():
        figures = {name: count.figures[key] for name, count in counts.items() if count}
        best = best_of(figures, PEERS)
        worse = best is not None and OURS in figures and figures[OURS] > figures[best]
        table.append([f"{pattern} {cores}",
                      *(Text(f"{figures[name]:.3f}", style="red" if name == OURS and worse else "")
                        if name in figures else "too long" for name in names)])
    print_table(console, title, ["", *names], table)


def print_top(console: Console, name: str, pattern: str, cores: int, count: Count) -> None:
    """Prints the code, the lines and the locks that count most."""
    title = f"{name}, {pattern} on {cores} cores"
    print_table(console, f"{title}: transfers by code", ["", "all", "remote"],
                [[what, f"{all_of:.4f}", f"{remote:.4f}"] for what, all_of, remote in count.code])
    print_table(console, f"{title}: transfers by line", ["", "all"],
                [[what, f"{all_of:.4f}"] for what, all_of in count.lines])
    print_table(console, f"{title}: locks", ["", "taken", "accesses"],
                [[what, f"{taken:.4f}", f"{hold:.3f}"] for what, taken, hold in count.locks])


def write_csv(path: Path, found: Found, seed: int) -> None:
    """Writes all figures."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pattern", "cores", "seed", "allocator", *FIGURES])
        for (pattern, cores), counts in found.items():
            for name, count in counts.items():
                figures = [count.figures[key] for key in FIGURES] if count else ["too long"]
                writer.writerow([pattern, cores, seed, name, *figures])


@click.command("coherence", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--allocators", callback=list_of(one_of((OURS, *PEERS))), metavar="A,B,...",
              help="Default: HAKMEM and the peers that build from source.")
@click.option("--patterns", callback=list_of(one_of(tuple(PATTERNS))), metavar="A,B,...",
              help=f"Default: all of {', '.join(PATTERNS)}.")
@click.option("--cores", callback=list_of(even_cores), metavar="A,B,...", help="Virtual cores. Default: 2,16,64,256.")
@click.option("--seed", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Another seed is another order of the threads.")
@click.option("--top", type=click.IntRange(0, 100), default=0, metavar="N",
              help="Also print the N places in the code, lines and locks that count most.")
@click.option("--csv", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write all figures to a file.")
def coherence(allocators: tuple[str, ...] | None, patterns: tuple[str, ...] | None, cores: tuple[int, ...] | None,
              seed: int, top: int, path: Path | None) -> None:
    """Count cache misses between cores, lock takings and remote lines on up to 256 virtual cores.

    The figures are for each malloc or free, and repeat exactly for a seed."""
    console = Console()
    names = list(allocators or (OURS, *PEERS))
    libraries = {name: library_of(name) for name in names}
    found: Found = {}
    for pattern in patterns or PATTERNS:
        for number in cores or CORES:
            counts = found.setdefault((pattern, number), {})
            for name in names:
                counts[name] = measure(libraries[name], pattern, number, seed, top)
                if path:
                    write_csv(path, found, seed)
    print_figure(console, found, names, "Transfers: accesses that wait for another core's copy of a line", "transfers")
    print_figure(console, found, names, "of these from the other node", "remote")
    print_figure(console, found, names, "Lock takings", "locks")
    print_figure(console, found, names, "Accesses while a lock is held", "hold")
    print_figure(console, found, names, "Cycles of the model", "cycles")
    for (pattern, number), counts in found.items() if top else ():
        for name, count in counts.items():
            if count:
                print_top(console, name, pattern, number, count)
