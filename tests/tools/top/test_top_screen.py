"""Protects the screen on made-up samples. textual's pilot presses its keys."""

import asyncio
import re

import blackbox
import click
import pytest
from inprocess import figures
from made import FakeSampler, made
from rich.color import Color, ColorSystem
from textual.widgets import DataTable, Static
from textual.widgets._footer import FooterKey
from textual.worker import WorkerFailed

from hakmem.live.memory import Unreadable
from hakmem.live.sample import RATES, rates
from hakmem.ps.survey import Row, Survey
from hakmem.screen import SPARKS, spark
from hakmem.live import tables
from hakmem.top import command, head
from hakmem.top.app import Top


def drive(script, sampler=None, interval=0.05, size=(150, 40)):
    """Runs the screen with script(app, pilot) at its keys."""
    async def run():
        app = Top(sampler or FakeSampler(), interval)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.sample is not None or app.note)
            await script(app, pilot)
        return app
    return asyncio.run(run())


async def until(pilot, condition):
    for _ in range(int(blackbox.HANG / 0.02)):
        if condition() or not pilot.app.is_running:
            return
        await pilot.pause(0.02)
    raise AssertionError("it did not come to that")


def text(app, name):
    return str(app.query_one(f"#{name}", Static).content)


def column(app, number):
    widget = app.query_one(DataTable)
    return [str(widget.get_row_at(row)[number]) for row in range(widget.row_count)]


def titles(app):
    return [str(each.label) for each in app.query_one(DataTable).ordered_columns]


XTERM = [(0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
         (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
         (255, 255, 255)]


def contrast(first, second):
    """WCAG's contrast of two colors as xterm shows them with 16 colors."""
    def luminance(color):
        shown = Color.from_rgb(*color.triplet).downgrade(ColorSystem.STANDARD)
        parts = [part / 255 for part in XTERM[shown.number]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055)**2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_keys_and_the_cursor_are_legible_with_16_colors():
    async def script(app, pilot):
        await until(pilot, lambda: len(app.query(FooterKey)) >= 6)  # the footer is composed after the first frame
        for key in app.query(FooterKey):
            for part in ("footer-key--key", "footer-key--description"):
                style = key.get_component_rich_style(part)
                assert contrast(style.color, style.bgcolor) >= 3, (key.description, part)
        style = app.query_one(DataTable).get_component_rich_style("datatable--cursor")
        assert contrast(style.color, style.bgcolor) >= 3
    drive(script)


def test_head_explains_the_rss():
    async def script(app, pilot):
        await until(pilot, lambda: app.before is not None)
        assert all(word in text(app, "title") for word in ("made-up", "4242", "9.9"))
        assert "20.0 MiB" in text(app, "memory") and "2 SuperSlabs" in text(app, "memory")
        assert [figures(part.replace("%", " %")) for part in text(app, "key").split("■")[1:]] == [
            ["8.00 MiB", "40 %"], ["1.00 MiB", "5 %"], ["1.00 MiB", "5 %"], ["2.00 MiB", "10 %"], ["1.00 MiB", "5 %"],
            ["7.00 MiB", "35 %"]]
        # Refills, flushes, slabs carved, remote frees; soft and hard page faults; the growth of RSS.
        assert re.findall(r"([-+\d.]+(?: KiB)?)/s", text(app, "rates")) == [
            "300", "150", "3.0", "21", "10", "0", "+4.00 KiB"]
    drive(script)


def test_bar_is_as_wide_as_it_is_told_and_shows_every_part():
    parts = {"live": 10 ** 9, "cached": 1, "free_in_slab": 0, "retained": 10 ** 8, "metadata": 5, "other": 10 ** 9}
    for width in (10, 77, 200):
        bar = head.bar(parts, width)
        assert len(bar.plain) == width
        seen = {style: len(text) for text, style in bar.parts}
        assert {head.PARTS[name][1] for name, size in parts.items() if size} == set(seen)
        assert seen[head.PARTS["cached"][1]] == 1


def test_views_by_key_and_tab():
    async def script(app, pilot):
        assert column(app, 1) == ["1", "2"]
        for key, view, rows in (("2", "threads", 3), ("3", "pools", 2), ("4", "superslabs", 2), ("5", "huge", 1),
                                ("1", "classes", 2)):
            await pilot.press(key)
            await pilot.pause()
            assert app.view == view and app.query_one(DataTable).row_count == rows
        for view in ("threads", "pools", "superslabs", "huge", "parts", "classes"):
            await pilot.press("tab")
            assert app.view == view
        assert "8.00 MiB" not in column(app, 1)
    drive(script)


def test_sorting():
    async def script(app, pilot):
        assert titles(app)[6] == "live bytes ▼" and column(app, 0) == ["16", "1,024"]
        await pilot.press("greater_than_sign")
        await pilot.pause()
        assert titles(app)[7] == "cached bytes ▼" and column(app, 0) == ["1,024", "16"]
        await pilot.press("r")
        await pilot.pause()
        assert titles(app)[7] == "cached bytes ▲" and column(app, 0) == ["16", "1,024"]
        await pilot.press(*["less_than_sign"] * 7)
        await pilot.pause()
        assert titles(app)[0] == "block size ▼" and column(app, 0) == ["1,024", "16"]
        await pilot.press("less_than_sign")
        await pilot.pause()
        assert titles(app)[-1] == "used ▼"
        # Each view keeps its own order.
        await pilot.press("2", "r", "1")
        await pilot.pause()
        assert titles(app)[-1] == "used ▼"
    drive(script)


def test_a_click_on_a_title_sorts():
    async def script(app, pilot):
        await pilot.click(DataTable, offset=(14, 0))
        await pilot.pause()
        assert [title[-1] for title in titles(app)].count("▼") == 1 and titles(app)[1] == "class ▼"
    drive(script)


def test_the_cursor_stays_on_its_row_when_the_order_turns():
    async def script(app, pilot):
        await pilot.press("down")
        widget = app.query_one(DataTable)
        chosen = str(widget.get_row_at(widget.cursor_row)[0])
        await pilot.press("r")
        await pilot.pause()
        assert widget.cursor_row == 0 and str(widget.get_row_at(0)[0]) == chosen == "1,024"
    drive(script)


def test_a_class_leads_to_its_slabs_by_thread_and_back():
    async def script(app, pilot):
        await pilot.press("down", "enter")
        await pilot.pause()
        assert figures(text(app, "subject")) == ["1 KiB", "2"]
        # Heap 3 has two slabs of 64 blocks: 74 used, of which 14 are cached.
        assert [column(app, number) for number in range(7)] \
            == [["3"], ["thread"], ["orphan"], ["2"], ["60"], ["14"], ["54"]]
        await pilot.press("enter")
        await pilot.pause()
        assert app.drilled == 2, "there is nothing further below"
        await pilot.press("escape")
        await pilot.pause()
        assert app.drilled is None and column(app, 0) == ["16", "1,024"]
    drive(script)


def test_a_thread_leads_to_its_classes():
    async def script(app, pilot):
        await pilot.press("2", "enter")
        await pilot.pause()
        assert figures(text(app, "subject")) == ["2"] and "main" in text(app, "subject")
        assert [column(app, number) for number in range(6)] == [["16"], ["1"], ["2"], ["4,900"], ["100"], ["3,192"]]
        await pilot.press("3", "enter")
        await pilot.pause()
        assert app.view == "pools" and app.drilled is None
    drive(script)


def test_pause_keeps_the_picture():
    """After the key no further sample comes: it stays the same for half a second, however late the last one was."""
    async def script(app, pilot):
        await pilot.press("space")
        seen = [app.sample.at]

        def still():
            seen.append(app.sample.at)
            return len(seen) > 25 and len(set(seen[-25:])) == 1
        await until(pilot, lambda: "paused" in text(app, "title"))
        await until(pilot, still)
        at = app.sample.at
        await pilot.press("2", "r")
        await pilot.pause()
        assert app.sample.at == at and len(column(app, 0)) == 3, "what stands can be looked at from all sides"
        await pilot.press("space")
        await until(pilot, lambda: app.sample.at > at)
        await until(pilot, lambda: "paused" not in text(app, "title"))
    drive(script)


def test_figures_change_in_place():
    async def script(app, pilot):
        first = column(app, 3)[0]
        await until(pilot, lambda: column(app, 3)[0] != first)
    drive(script)


def test_help_and_its_keys():
    async def script(app, pilot):
        await pilot.press("h")
        await pilot.pause()
        assert len(app.screen_stack) == 2
        assert len(str(app.screen.query_one("#help Static", Static).content)) > 100
        await pilot.press("2")
        await pilot.pause()
        assert app.view == "classes", "keys of the screen below have no effect"
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running
    drive(script)


def test_a_process_that_ends_leaves_its_last_picture():
    async def script(app, pilot):
        await until(pilot, lambda: app.note)
        assert "ended" in text(app, "title") and "4242" in text(app, "title")
        assert app.sample.at == 1.0 and column(app, 0) == ["16", "1,024"]
        await pilot.press("space", "2")
        await pilot.pause(0.2)
        assert sampler.taken == 3 and "ended" in text(app, "title") and len(column(app, 0)) == 3
    sampler = FakeSampler(count=2)
    drive(script, sampler)


def test_a_look_that_fails_is_told_and_tried_again():
    async def script(app, pilot):
        await until(pilot, lambda: "torn" in text(app, "title"))
        await until(pilot, lambda: "torn" not in text(app, "title"))
        assert app.sample.at > 2
    drive(script, FakeSampler(errors={1: Unreadable("torn"), 2: Unreadable("torn")}), interval=0.3)


def test_an_unforeseen_error_is_not_swallowed():
    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        drive(lambda app, pilot: until(pilot, lambda: False), FakeSampler(errors={1: ZeroDivisionError()}))


def test_rates_need_two_samples_and_counters_that_are_there():
    assert rates(None, made()) is None and rates(made(1), made(1)) is None
    before, after = made(1), made(2)
    del before.shot.counters["refills"]
    found = rates(before, after)
    assert found.counters == {"refills": None, "flushes": 150, "slabs_carved": 3, "remote_blocks": 21}
    assert re.search(r" -( |$)", head.rates_line(found, RATES).plain)


def test_many_rows_are_cut_and_it_is_said():
    async def script(app, pilot):
        await pilot.press("5")
        await pilot.pause()
        assert figures(text(app, "subject"))[-2:] == [str(tables.ROWS_MOST), "1,000"]
        assert column(app, 1)[0] == "999 MiB" and len(column(app, 0)) == tables.ROWS_MOST
    sample = made()
    huge = sample.shot.huge[0]
    sample.shot.huge = [type(huge)(number << 32, number << 20, True, None) for number in range(1000)]
    sampler = FakeSampler()
    sampler.take = lambda: sample
    drive(script, sampler)


def test_the_history_is_drawn():
    async def script(app, pilot):
        await until(pilot, lambda: len(app.history) >= 5)
        line = text(app, "history")
        assert "MiB" in line and set(line) & set(SPARKS)
    drive(script)


def test_spark():
    assert spark([], 10) == "" and spark([None, 5], 10) == "▁"
    assert spark([1, 2, 3, 4, 5, 6, 7, 8], 80) == SPARKS
    assert spark([9, 1, 8], 2) == "▁█", "the last ones, by themselves"
    assert head.history_line([(1 << 20, 1 << 10), (2 << 20, 1 << 10)], 58).plain == (
        "RSS  ▁█ 1.00 MiB to 2.00 MiB\nlive ▁▁ 1.00 KiB to 1.00 KiB")


def test_sixty_columns():
    """The head is complete, and the table is there."""
    async def script(app, pilot):
        await until(pilot, lambda: len(app.history) >= 3)
        for name in ("title", "memory", "key", "rates", "history", "tabs"):
            widget = app.query_one(f"#{name}", Static)
            lines = text(app, name).split("\n")
            room = widget.size.width * widget.size.height
            assert widget.size.width <= 58 and sum(map(len, lines)) <= room, (name, text(app, name))
        assert app.query_one(DataTable).size.height >= 4
        assert app.query_one(DataTable).row_count > 0
    drive(script, size=(60, 24))


def test_a_narrow_screen_has_the_names_and_the_sorted_column():
    """Whatever the view is sorted by, without scrolling to the side."""
    async def script(app, pilot):
        for number, view in enumerate(("classes", "threads", "pools", "superslabs", "huge"), 1):
            await pilot.press(str(number))
            table = tables.view(view, app.sample.shot, app.sample.resident.superslabs)
            for _ in table.columns:
                await pilot.press(">")
                column, _ = app.orders[table.name]
                widget = app.query_one(DataTable)
                assert widget.virtual_size.width <= 60, (view, titles(app))
                wanted = [table.columns[name].title for name in table.names] + [table.columns[column].title]
                assert set(wanted) <= {title.rstrip(" ▼▲") for title in titles(app)}
                (arrow,) = (title for title in titles(app) if title[-1] in "▼▲")
                assert arrow[:-2] == table.columns[column].title
                hidden = len(table.columns) - len(titles(app))
                assert (figures(text(app, "subject"))[-1:] == [str(hidden)]) == (hidden > 0)
    drive(script, size=(60, 20))


def test_a_click_sorts_by_the_column_under_it_on_a_narrow_screen():
    async def script(app, pilot):
        await pilot.press("2")
        last = app.query_one(DataTable).ordered_columns[-1]
        x = sum(each.get_render_width(app.query_one(DataTable))
                for each in app.query_one(DataTable).ordered_columns[:-1]) + 2
        await pilot.click(DataTable, offset=(x, 0))
        assert titles(app)[-1].startswith(str(last.label).rstrip(" ▼▲")) and titles(app)[-1][-1] in "▼▲"
    drive(script, size=(60, 24))


def test_a_wider_screen_has_more_columns():
    async def script(app, pilot):
        before = len(titles(app))
        await pilot.resize_terminal(150, 24)
        await until(pilot, lambda: len(titles(app)) == len(tables.classes(app.sample.shot).columns))
        assert before < len(titles(app))
    drive(script, size=(60, 24))


def test_without_a_pid_one_is_chosen(monkeypatch, capsys):
    rows = [Row(41, "one", "one --long", "9.9", 1 << 20, 1 << 19, 0), Row(42, "two", "two", "9.9", 2 << 20, 1 << 19, 0)]
    monkeypatch.setattr("hakmem.ps.survey.survey", lambda: Survey(shown, 0))
    shown = rows[:1]
    assert command.chosen(False) == 41
    shown = []
    with pytest.raises(command.TopError):
        command.chosen(True)
    shown = rows
    with pytest.raises(click.UsageError, match="2 processes"):
        command.chosen(False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "42")
    assert command.chosen(True) == 42
    assert "one --long" in capsys.readouterr().out
    with pytest.raises(click.BadParameter, match="'43'"):
        command.pick("43", rows)
