"""Prints a snapshot as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem import screen
from hakmem.compat import zip_strict
from hakmem.live import tables, words
from hakmem.live.model import Snapshot
from hakmem.screen import Console, Table, Text
from hakmem.units import bytes_column


def print_snapshot(console: Console, shot: Snapshot, superslabs: bool = False) -> None:
    """Prints totals, pools, classes, threads, SuperSlabs by tier (or each of them) and counters."""
    console.print(Text(words.heading(shot), style="bold"))
    by_tier = drawn(tables.pools(shot))
    live = [block for block in shot.huge if block.live]
    if shot.huge:
        by_tier.caption = (f"{len(live)} huge blocks ({bytes_column(shot.totals.huge_live)}), "
                           f"{len(shot.huge) - len(live)} freed ranges kept "
                           f"({bytes_column(shot.totals.huge_cached)})")
    for table in (totals(shot), drawn(tables.kinds(shot)), drawn(tables.classes(shot)), drawn(tables.parts(shot)),
                  drawn(tables.threads(shot)), by_tier, *([drawn(tables.superslabs(shot))] if superslabs else []),
                  counters(shot)):
        if table.row_count:
            console.print()
            console.print(table)


def drawn(table: tables.Table, by: int | None = None) -> Table:
    """Returns a table as the console prints it, in its own order or sorted by a column."""
    made = screen.Table(table.title)
    for column in table.columns:
        made.add_column(column.title, justify="left" if column.kind == "words" else "right", no_wrap=True,
                        spare=column.spare)
    for row in table.rows if by is None else [row for _, row in table.sorted(by)]:
        made.add_row(*(tables.value_text(value, column.kind) for value, column in zip_strict(row, table.columns)))
    return made


def new_table(title: str, *columns: str, spare: Sequence[str] = ()) -> Table:
    """Returns a table with these columns. A name that begins with < is a column of text. spare: the columns that a
    narrow terminal leaves out, the first one first."""
    table = Table(title)
    for name in columns:
        table.add_column(name.removeprefix("<"), justify="left" if name.startswith("<") else "right",
                         no_wrap=not name.startswith("<"),
                         spare=len(spare) - spare.index(name) if name in spare else 0)
    return table


def totals(shot: Snapshot) -> Table:
    """Returns the table of totals."""
    table = new_table("Memory", "<", "bytes", "", "of mapped", "<what it is", spare=("", "of mapped"))
    whole = shot.totals.mapped
    for name, meaning in {**words.PARTS, **words.OTHER_TOTALS}.items():
        value = getattr(shot.totals, name)
        table.add_row(name.replace("_", " "), f"{value:,}", bytes_column(value), words.share(value, whole), meaning,
                      end_section=name == "metadata")
    return table


def counters(shot: Snapshot) -> Table:
    """Returns the table of counters."""
    table = new_table("Counters", "<", "since the start")
    for name, value in shot.counters.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table
