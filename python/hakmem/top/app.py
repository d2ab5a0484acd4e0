"""The screen: a head that explains the RSS, a table, keys."""

import asyncio
import time

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from hakmem.live.memory import LiveError, NoPermission, NoProcess
from hakmem.top import tables, words
from hakmem.top.sample import RATES, rates

# At most this share of the time goes into looking, however large the heap is.
LOOKING = 0.25
TABS = {"classes": "classes", "threads": "threads", "pools": "pools", "superslabs": "SuperSlabs", "huge": "huge blocks"}
HELP = """\
The bar is the resident memory (RSS) of the process. A slab's resident bytes are counted as live first,
then as cached, then as free.

 live          blocks that the program holds, rounded up to their size class
 cached        free blocks in the caches of threads
 free in slab  free blocks in slabs, and what is left over at their ends
 retained      units, SuperSlabs and huge ranges without blocks, kept for the next
 metadata      headers, maps, the caches' own memory
 other         not HAKMEM's: program, libraries, stacks, files, what a second allocator holds

 1 to 5        classes, threads, pools, SuperSlabs, huge blocks; tab: the next of them
 < and >       sort by the column to the left or right; a click on its title does it too
 r             sort the other way round
 enter         of a class: its slabs by thread; of a thread: the classes of its slabs
 escape        back
 space         pause, go on
 h or ?        this text
 q             quit
"""


class Help(ModalScreen):
    """What the figures mean and what the keys do."""

    BINDINGS = [("escape,h,question_mark,q,enter,space", "dismiss", "Back")]
    CSS = "Help { align: center middle; } #help { width: 90; max-width: 100%; height: auto; max-height: 100%; \
border: round $accent; padding: 1 2; background: $surface; }"

    def compose(self):
        with VerticalScroll(id="help"):
            yield Static(HELP, markup=False)


class Bar(Static):
    """The stacked bar, as wide as the screen."""

    parts = None

    def render(self):
        return words.bar(self.parts, self.size.width) if self.parts else Text()


class Top(App):
    """`hakmem top`. The sampler is anything with take()."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #title, #memory, #rates, #tabs, #subject { height: 1; padding: 0 1; }
    #rates { height: auto; }
    #key { height: auto; padding: 0 1; }
    Bar { height: 1; margin: 0 1; }
    #tabs { margin-top: 1; background: $surface; }
    #subject { text-style: bold; }
    DataTable { height: 1fr; }
    """
    BINDINGS = [
        Binding("q,ctrl+c", "quit", "Quit"), Binding("space", "pause", "Pause", priority=True),
        Binding("tab", "next_view", "Next", priority=True),
        Binding("less_than_sign,comma", "sort(-1)", "Sort <", key_display="<"),
        Binding("greater_than_sign,full_stop", "sort(1)", "Sort >", key_display=">"),
        Binding("r", "reverse", "Reverse"),
        Binding("escape,backspace", "back", "Back"), Binding("h,question_mark", "help", "Help", key_display="h"),
        *(Binding(str(number), f"view('{name}')", name.capitalize(), show=False)
          for number, name in enumerate(tables.VIEWS, 1)),
    ]

    def __init__(self, sampler, interval):
        super().__init__()
        self.sampler = sampler
        self.interval = interval
        self.before = self.sample = None
        self.view, self.drilled = "classes", None  # drilled: what the key of a row of the view led to
        self.orders = {}  # table -> (column, descending)
        self.note = ""
        self.running = asyncio.Event()
        self.running.set()
        self.shown = None  # the table that stands in the widget

    def compose(self):
        yield Static(id="title")
        yield Static(id="memory")
        yield Bar()
        yield Static(id="key")
        yield Static(id="rates")
        yield Static(id="tabs")
        yield Static(id="subject")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_ready(self):
        self.title = "hakmem top"
        self.query_one(DataTable).focus()
        self.run_worker(self.watch(), exit_on_error=True)

    # ---- Looking ----

    async def watch(self):
        """Looks until the process ends. A look that failed is told and tried again."""
        while True:
            await self.running.wait()
            begun = time.monotonic()
            try:
                sample = await asyncio.to_thread(self.sampler.take)
            except (NoProcess, NoPermission) as error:
                self.end(f"ended: {error}" if isinstance(error, NoProcess) else str(error))
                return
            except LiveError as error:
                self.note = f"not read just now: {error}"
            else:
                if not self.running.is_set():
                    # Paused while it was taken: the picture stands.
                    continue
                self.before, self.sample, self.note = self.sample, sample, ""
            self.redraw()
            took = time.monotonic() - begun
            await asyncio.sleep(max(self.interval - took, took * (1 / LOOKING - 1)))

    def end(self, note):
        self.note = note
        self.running.clear()
        self.redraw()

    # ---- Drawing ----

    def redraw(self):
        """Draws the head and the table of the last sample."""
        if not self.query("#title"):
            # The screen is being taken down while the last look ends.
            return
        if self.sample is None:
            self.query_one("#title", Static).update(Text(self.note or "looking", style="bold yellow"))
            return
        parts = self.sample.resident.parts()
        found = rates(self.before, self.sample)
        note = self.note or ("" if self.running.is_set() else "paused")
        for name, text in (("title", words.title(self.sample, note)), ("memory", words.memory_line(self.sample)),
                           ("key", words.key(parts)), ("rates", words.rates_line(found, RATES)), ("tabs", self.tabs())):
            self.query_one(f"#{name}", Static).update(text)
        bar = self.query_one(Bar)
        bar.parts = parts
        bar.refresh()
        self.draw_table()

    def tabs(self):
        text = Text()
        for number, name in enumerate(tables.VIEWS, 1):
            text.append(f" {number} {TABS[name]} ", style="reverse bold" if name == self.view else "")
            text.append(" ")
        return text

    def table(self):
        """The table that is looked at, drawn up from the last sample."""
        if self.drilled is not None:
            return tables.DRILLS[self.view](self.sample, self.drilled)
        return tables.VIEWS[self.view](self.sample)

    def draw_table(self):
        table = self.table()
        column, descending = self.orders.get(table.name, (table.order, None))
        rows = table.sorted(column, descending)
        cut = f": {tables.ROWS_MOST:,} of {len(rows):,}, the first by {table.columns[column].title}" if (
            len(rows) > tables.ROWS_MOST) else "" if rows else ": none"
        self.query_one("#subject", Static).update(Text(table.title + cut))
        rows = rows[:tables.ROWS_MOST]
        widget = self.query_one(DataTable)
        keys = [str(key) for key, _ in rows]
        heads = [f"{each.title} {self.arrow(table, column, descending)}" if number == column else each.title
                 for number, each in enumerate(table.columns)]
        cells = [[self.cell(value, each.kind) for value, each in zip(row, table.columns, strict=True)]
                 for _, row in rows]
        if self.shown is not None and self.shown[:3] == (table.name, heads, keys):
            for number, row in enumerate(cells):
                for place, cell in enumerate(row):
                    if cell != self.shown[3][number][place]:
                        widget.update_cell_at((number, place), cell, update_width=True)
        else:
            self.fill(widget, table, heads, keys, cells)
        self.shown = (table.name, heads, keys, cells)

    def fill(self, widget, table, heads, keys, cells):
        """Puts a table's rows into the widget; the cursor stays on its row, and what is in sight there."""
        same = self.shown is not None and self.shown[0] == table.name
        chosen = self.shown[2][widget.cursor_row] if same and widget.cursor_row < len(self.shown[2]) else None
        scrolled = widget.scroll_offset
        if same and self.shown[1] == heads:
            widget.clear()
        else:
            widget.clear(columns=True)
            for number, (head, column) in enumerate(zip(heads, table.columns, strict=True)):
                widget.add_column(Text(head, justify="left" if column.kind == "words" else "right"), key=str(number))
        for key, row in zip(keys, cells, strict=True):
            widget.add_row(*row, key=key)
        if chosen in keys:
            widget.move_cursor(row=keys.index(chosen), animate=False, scroll=False)
        if same:
            widget.scroll_to(scrolled.x, scrolled.y, animate=False, force=True)

    @staticmethod
    def arrow(table, column, descending):
        if descending is None:
            descending = table.columns[column].kind not in ("words", "address")
        return "▼" if descending else "▲"

    @staticmethod
    def cell(value, kind):
        return Text(tables.value_text(value, kind), justify="left" if kind == "words" else "right")

    # ---- Keys ----

    def go(self, view, drilled=None):
        self.view, self.drilled = view, drilled
        self.redraw()

    def action_view(self, name):
        self.go(name)

    def action_next_view(self):
        names = list(tables.VIEWS)
        self.go(names[(names.index(self.view) + 1) % len(names)])

    def action_back(self):
        self.go(self.view)

    def action_help(self):
        self.push_screen(Help())

    def action_pause(self):
        if self.note.startswith("ended"):
            return
        if self.running.is_set():
            self.running.clear()
        else:
            self.running.set()
        self.redraw()

    def action_sort(self, step):
        self.sort_by(lambda column, count: (column + step) % count)

    def sort_by(self, choose):
        if self.sample is None:
            return
        table = self.table()
        column, _ = self.orders.get(table.name, (table.order, None))
        self.orders[table.name] = (choose(column, len(table.columns)), None)
        self.redraw()

    def action_reverse(self):
        if self.sample is None:
            return
        table = self.table()
        column, descending = self.orders.get(table.name, (table.order, None))
        self.orders[table.name] = (column, self.arrow(table, column, descending) == "▲")
        self.redraw()

    def on_data_table_header_selected(self, event):
        self.sort_by(lambda column, count: event.column_index)

    def on_data_table_row_selected(self, event):
        if self.drilled is None and self.view in tables.DRILLS and self.sample is not None:
            self.go(self.view, int(event.row_key.value))

    def check_action(self, action, parameters):
        # On the help, its own keys alone.
        return len(self.screen_stack) == 1 or action == "quit"
