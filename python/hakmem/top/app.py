"""The screen: a head that explains the RSS, a table, and keys."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from hakmem.apart import in_thread
from hakmem.compat import zip_strict
from hakmem.live import tables
from hakmem.live.memory import LiveError, NoPermission, NoProcess
from hakmem.live.sample import RATES, Sample, rates
from hakmem.screen import Text as ScreenText
from hakmem.top import head

# Looking takes at most this share of the time, however large the heap is.
LOOKING = 0.25
# Seconds until the screen tells that a look takes long.
SLOW = 5
# The looks that the history keeps: more than a screen is wide.
LOOKS = 400
TABS = {"classes": "classes", "threads": "threads", "pools": "pools", "superslabs": "SuperSlabs", "huge": "huge",
        "parts": "hits"}
HELP = """\
The bar is the resident memory (RSS) of the process. A slab's resident bytes are counted as live first,
then as cached, then as free.

 live          blocks that the program holds, rounded up to their size class
 cached        free blocks in the caches of threads
 free in slab  free blocks in slabs, and what is left over at their ends
 retained      units, SuperSlabs and huge ranges without blocks, kept for the next
 metadata      headers, maps, the caches' own memory
 other         not HAKMEM's: program, libraries, stacks, files, what a second allocator holds

 1 to 6        classes, threads, pools, SuperSlabs, huge blocks, hits; tab: the next of them
 < and >       sort by the column to the left or right, which is then shown on a narrow screen, too;
               a click on its title does it
 r             sort the other way round
 enter         of a class: its slabs by thread; of a thread: the classes of its slabs
 escape        back
 space         pause, go on
 h or ?        this text
 q             quit
"""


class Looker(Protocol):
    """What looks at a process: a Sampler."""

    def take(self) -> Sample:
        """Returns a Sample."""


class Help(ModalScreen[None]):
    """Explains the figures and the keys."""

    BINDINGS = [("escape,h,question_mark,q,enter,space", "dismiss", "Back")]
    CSS = "Help { align: center middle; } #help { width: 90; max-width: 100%; height: auto; max-height: 100%; \
border: round $accent; padding: 1 2; background: $surface; }"

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        with VerticalScroll(id="help"):
            yield Static(HELP, markup=False)


def drawn(text: ScreenText) -> Text:
    """Returns a text of the head as a textual Text."""
    return Text.assemble(*text.parts)


class Bar(Static):
    """The stacked bar, as wide as the screen."""

    parts: dict[str, int] | None = None

    def render(self) -> Text:
        """Returns the bar."""
        return drawn(head.bar(self.parts, self.size.width)) if self.parts else Text()


class Top(App[None]):
    """The app of `hakmem top`. sampler: anything with take()."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #title, #tabs, #subject { height: 1; padding: 0 1; }
    #memory, #key, #rates, #history { height: auto; padding: 0 1; }
    Bar { height: 1; margin: 0 1; }
    #tabs { margin-top: 1; background: $surface; }
    #subject { text-style: bold; }
    DataTable { height: 1fr; }
    /* With 16 colors, textual's footer has red keys on a grey as dark, and its row of the cursor white on cyan. */
    Footer, FooterKey { background: $background; }
    DataTable:focus > .datatable--cursor { background: $foreground; color: $background; }
    """
    BINDINGS = [
        Binding("q,ctrl+c", "quit", "Quit"), Binding("space", "pause", "Pause", priority=True),
        Binding("tab", "next_view", "Next", priority=True),
        Binding("less_than_sign,comma", "sort(-1)", "Sort <", key_display="<"),
        Binding("greater_than_sign,full_stop", "sort(1)", "Sort >", key_display=">"),
        Binding("r", "reverse", "Reverse"),
        Binding("escape,backspace", "leave_row", "Back"), Binding("h,question_mark", "help", "Help", key_display="h"),
        *(Binding(str(number), f"view('{name}')", name.capitalize(), show=False)
          for number, name in enumerate(tables.VIEWS, 1)),
    ]

    def __init__(self, sampler: Looker, interval: float) -> None:
        super().__init__()
        self.sampler = sampler
        self.interval = interval
        self.before: Sample | None = None
        self.sample: Sample | None = None
        self.view = "classes"
        self.drilled: int | None = None  # what the key of a row of the view led to
        self.history: deque[tuple[int, int]] = deque(maxlen=LOOKS)  # (RSS, live bytes) of each look
        self.orders: dict[str, tuple[int, bool | None]] = {}  # table -> (column, descending)
        # {table: the greatest width that each of its columns has needed}, so that figures make no column come and go.
        self.widths: dict[str, list[int]] = {}
        self.note = ""
        self.running = asyncio.Event()
        self.running.set()
        # The table that stands in the widget: its name, heads, keys and cells.
        self.shown: tuple[str, dict[int, str], list[str], list[list[Text]]] | None = None

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        yield Static(id="title")
        yield Static(id="memory")
        yield Bar()
        yield Static(id="key")
        yield Static(id="rates")
        yield Static(id="history")
        yield Static(id="tabs")
        yield Static(id="subject")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_ready(self) -> None:
        """Starts looking."""
        self.title = "hakmem top"
        self.query_one(DataTable).focus()
        self.run_worker(self.look_on(), exit_on_error=True)

    # ---- Looking ----

    async def look_on(self) -> None:
        """Looks until the process ends. Tells of a look that failed, and tries again."""
        while True:
            await self.running.wait()
            begun = time.monotonic()
            try:
                sample = await self.taken()
            except (NoProcess, NoPermission) as error:
                self.end(f"ended: {error}" if isinstance(error, NoProcess) else str(error))
                return
            except LiveError as error:
                self.note = f"not read just now: {error}"
            else:
                if not self.running.is_set():
                    # Paused during the look: the picture stays.
                    continue
                self.before, self.sample, self.note = self.sample, sample, ""
                self.history.append((sample.rss, sample.shot.totals.live))
            self.redraw()
            took = time.monotonic() - begun
            await asyncio.sleep(max(self.interval - took, took * (1 / LOOKING - 1)))

    async def taken(self) -> Sample:
        """Returns a Sample. If the process holds its reader up, the screen says so and keys still work."""
        begun, look = time.monotonic(), asyncio.wrap_future(in_thread(self.sampler.take))
        while not (await asyncio.wait([look], timeout=SLOW))[0]:
            self.note = f"held up: the process has kept its reader waiting for {time.monotonic() - begun:.0f} s"
            self.redraw()
        return look.result()

    def end(self, note: str) -> None:
        """Stops looking, with a note that says why."""
        self.note = note
        self.running.clear()
        self.redraw()

    # ---- Drawing ----

    def redraw(self) -> None:
        """Draws the head and the table of the latest sample."""
        if not self.query("#title"):
            # The screen is being taken down while the last look ends.
            return
        if self.sample is None:
            self.query_one("#title", Static).update(Text(self.note or "looking", style="bold yellow"))
            return
        parts = self.sample.resident.parts()
        found = rates(self.before, self.sample)
        note = self.note or ("" if self.running.is_set() else "paused")
        for name, text in (("title", head.title(self.sample, note)), ("memory", head.memory_line(self.sample)),
                           ("key", head.key(parts)), ("rates", head.rates_line(found, RATES)),
                           ("history", head.history_line(self.history, self.size.width - 2))):
            self.query_one(f"#{name}", Static).update(drawn(text))
        self.query_one("#tabs", Static).update(self.tabs())
        bar = self.query_one(Bar)
        bar.parts = parts
        bar.refresh()
        self.draw_table(self.sample)

    def tabs(self) -> Text:
        """Returns the line of views."""
        text = Text()
        gap = " " if self.size.width >= 72 else ""
        for number, name in enumerate(tables.VIEWS, 1):
            text.append(f"{gap}{number} {TABS[name]}{gap}", style="reverse bold" if name == self.view else "")
            text.append(" ")
        return text

    def table(self, sample: Sample) -> tables.Table:
        """Returns the table of the chosen view."""
        if self.drilled is not None:
            return tables.DRILLS[self.view](sample.shot, self.drilled)
        return tables.view(self.view, sample.shot, sample.resident.superslabs)

    def draw_table(self, sample: Sample) -> None:
        """Draws the table. Updates only changed cells if its rows and heads are the same."""
        table = self.table(sample)
        column, descending = self.orders.get(table.name, (table.order, None))
        rows = table.sorted(column, descending)
        cut = f": {tables.ROWS_MOST:,} of {len(rows):,}, the first by {table.columns[column].title}" if (
            len(rows) > tables.ROWS_MOST) else "" if rows else ": none"
        rows = rows[:tables.ROWS_MOST]
        widget = self.query_one(DataTable)
        keys = [str(key) for key, _ in rows]
        cells = [[self.cell(value, each.kind) for value, each in zip_strict(row, table.columns)]
                 for _, row in rows]
        places = self.fitting(widget, table, cells, column)
        hidden = len(table.columns) - len(places)
        self.query_one("#subject", Static).update(Text(
            table.title + cut + (f" ({hidden} columns more: < and >)" if hidden else "")))
        heads = {number: table.columns[number].title + (
            f" {self.arrow(table, column, descending)}" if number == column else "") for number in places}
        cells = [[row[number] for number in places] for row in cells]
        if self.shown is not None and self.shown[:3] == (table.name, heads, keys):
            for number, row in enumerate(cells):
                for place, cell in enumerate(row):
                    if cell != self.shown[3][number][place]:
                        widget.update_cell_at(Coordinate(number, place), cell, update_width=True)
        else:
            self.fill(widget, table, heads, keys, cells)
        self.shown = (table.name, heads, keys, cells)

    def fitting(self, widget: DataTable[Text], table: tables.Table, cells: list[list[Text]], column: int) -> list[int]:
        """Returns the columns that the screen has room for."""
        widths = self.widths.setdefault(table.name, [len(each.title) + len(" ▼") for each in table.columns])
        for row in cells:
            for number, cell in enumerate(row):
                widths[number] = max(widths[number], cell.cell_len)
        room = self.size.width - widget.styles.scrollbar_size_vertical
        return table.fitting([width + 2 * widget.cell_padding for width in widths], room, column)

    def fill(self, widget: DataTable[Text], table: tables.Table, heads: dict[int, str], keys: list[str],
             cells: list[list[Text]]) -> None:
        """Puts a table's rows into the widget. The cursor stays on its row and the scroll position stays."""
        name, old_heads, old_keys, _ = self.shown or ("", {}, [], [])
        same = name == table.name
        chosen = old_keys[widget.cursor_row] if same and widget.cursor_row < len(old_keys) else None
        scrolled = widget.scroll_offset
        if same and old_heads == heads:
            widget.clear()
        else:
            widget.clear(columns=True)
            for number, head in heads.items():
                left = table.columns[number].kind == "words"
                widget.add_column(Text(head, justify="left" if left else "right"), key=str(number))
        for key, row in zip_strict(keys, cells):
            widget.add_row(*row, key=key)
        if chosen is not None and chosen in keys:
            widget.move_cursor(row=keys.index(chosen), animate=False, scroll=False)
        if same:
            widget.scroll_to(scrolled.x, scrolled.y, animate=False, force=True)

    @staticmethod
    def arrow(table: tables.Table, column: int, descending: bool | None) -> str:
        """Returns the arrow of a sorted column."""
        if descending is None:
            descending = table.columns[column].kind not in ("words", "address")
        return "▼" if descending else "▲"

    @staticmethod
    def cell(value: tables.Cell, kind: str) -> Text:
        """Returns a value as a cell."""
        return Text(tables.value_text(value, kind), justify="left" if kind == "words" else "right")

    # ---- Keys ----

    def go(self, view: str, drilled: int | None = None) -> None:
        """Shows a view, or the table behind one of its rows."""
        self.view, self.drilled = view, drilled
        self.redraw()

    def on_resize(self) -> None:
        """Draws again: another width has room for other columns."""
        self.redraw()

    def action_view(self, name: str) -> None:
        """Shows a view."""
        self.go(name)

    def action_next_view(self) -> None:
        """Shows the next view."""
        names = list(tables.VIEWS)
        self.go(names[(names.index(self.view) + 1) % len(names)])

    def action_leave_row(self) -> None:
        """Goes back from the table behind a row."""
        self.go(self.view)

    def action_help(self) -> None:
        """Shows the help."""
        self.push_screen(Help())

    def action_pause(self) -> None:
        """Pauses, or goes on."""
        if self.note.startswith("ended"):
            return
        if self.running.is_set():
            self.running.clear()
        else:
            self.running.set()
        self.redraw()

    def action_sort(self, step: int) -> None:
        """Sorts by the column `step` columns further."""
        self.sort_by(lambda column, count: (column + step) % count)

    def sort_by(self, choose: Callable[[int, int], int]) -> None:
        """Sorts by the column that choose(column, number of columns) returns."""
        if self.sample is None:
            return
        table = self.table(self.sample)
        column, _ = self.orders.get(table.name, (table.order, None))
        self.orders[table.name] = (choose(column, len(table.columns)), None)
        self.redraw()

    def action_reverse(self) -> None:
        """Reverses the order."""
        if self.sample is None:
            return
        table = self.table(self.sample)
        column, descending = self.orders.get(table.name, (table.order, None))
        self.orders[table.name] = (column, self.arrow(table, column, descending) == "▲")
        self.redraw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sorts by the column that was clicked."""
        number = int(event.column_key.value or 0)
        self.sort_by(lambda column, count: number)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Shows the table behind a row."""
        key = event.row_key.value
        if self.drilled is None and self.view in tables.DRILLS and self.sample is not None and key is not None:
            self.go(self.view, int(key))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Returns whether a key works now."""
        # On the help screen, only its own keys and quit work.
        return len(self.screen_stack) == 1 or action == "quit"
