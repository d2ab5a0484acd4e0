"""One screen as text, for pipes and logs."""

import rich.table
from rich.text import Text

from hakmem.top import tables, words
from hakmem.top.sample import RATES

BAR_WIDTH = 100
VIEWS = ("classes", "threads", "pools")


def print_sample(console, sample, found):
    """Prints the head and the tables of classes, threads and pools; `found` are the rates."""
    parts = sample.resident.parts()
    for line in (words.title(sample), words.memory_line(sample), words.bar(parts, min(BAR_WIDTH, console.width)),
                 words.key(parts), words.rates_line(found, RATES)):
        console.print(line)
    for name in VIEWS:
        table = tables.VIEWS[name](sample)
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(drawn(table))


def drawn(table):
    """A Table as rich draws it."""
    made = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        made.add_column(column.title, justify="left" if column.kind == "words" else "right", no_wrap=True)
    for _, row in table.sorted():
        made.add_row(*(tables.value_text(value, column.kind) for value, column in zip(row, table.columns, strict=True)))
    return made
