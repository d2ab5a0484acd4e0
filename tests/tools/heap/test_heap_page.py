"""Protects the page in a real browser: it draws, zooms, searches, switches, shows our figures, and fetches nothing."""

import json
import os
import time
from pathlib import Path

import pytest
from making import Making, known, named, run, with_lives
from pages import frames, highlighted, shown, wait_for
from selenium.webdriver.common.by import By

import blackbox

# The page must show this as text, and never as markup.
HOSTILE = "</script><script>alert('x')</script><b>"
KINDS = ["Objects allocated", "Bytes allocated", "Objects in use", "Bytes in use"]


def server_like():
    """A small server's profile, deep and wide enough for a picture."""
    making = Making()
    top = ("main:210", "event_loop:88")
    request = ("handle_request:131", "connection_ready:57", *reversed(top))
    source = "/src/server/server.cc"

    def add(inner, outer, objects, size, kept, file=source):
        making.stack(named(*inner, file=file) + named(*outer, file=source), objects, objects * size, kept, kept * size)
    add(("cache::Table::grow:64", "cache::Table::insert:41", "store_page:12"), request, 900, 65536, 300,
        "/src/server/cache.cc")
    add(("cache::Entry::Entry:20", "cache::Table::insert:43", "store_page:12"), request, 80000, 192, 52000,
        "/src/server/cache.cc")
    add(("json::Value::append:301", "json::parse_array:210", "json::parse:77"), request, 700000, 64, 21000,
        "/src/json/parse.cc")
    add(("json::Value::set:322", "json::parse_object:180", "json::parse_array:215", "json::parse:77"), request, 400000,
        96, 26000, "/src/json/parse.cc")
    add(("json::string_of:119", "json::parse_object:176", "json::parse:77"), request, 900000, 48, 9000,
        "/src/json/parse.cc")
    add(("z_inflate_init:55", "decompress:31"), request, 30000, 43776, 42, "/src/zip/inflate.c")
    add(("log::Line::format:29", "log::write:13"), request, 2000000, 256, 64, "/src/log/log.cc")
    add(("tls_session_new:402", "tls_accept:377", "accept_connection:50"), tuple(reversed(top)), 6000, 9216, 410,
        "/src/tls/session.c")
    add(("read_config:33", "startup:18"), ("main:201",), 120, 2048, 120)
    add(("thread_start:9",), (), 16, 131072, 8, "/src/server/pool.cc")
    return making


def frame(browser, name):
    return next(element for element in browser.find_elements(By.CSS_SELECTOR, "#graph g.frame")
                if element.get_attribute("name") == name)


def share(bars, name):
    return bars[name][0] / bars["all"][0] if name in bars and "all" in bars else None


def table(browser):
    return [row.split("\t") for row in browser.execute_script(
        "return [...document.querySelectorAll('#sites tbody tr')].map(r => "
        "[...r.cells].map(c => c.textContent).join('\\t'))")]


def press(browser, kind):
    next(button for button in browser.find_elements(By.CSS_SELECTOR, "[data-kind]") if button.text == kind).click()


def search(browser, text):
    field = browser.find_element(By.ID, "search")
    field.clear()
    field.send_keys(text)


def found_text(browser):
    return browser.find_element(By.ID, "found").text


@pytest.fixture
def profile(tmp_path):
    return known().write(tmp_path / "known.pb")


def test_bars_are_as_wide_as_their_share_and_nothing_is_fetched(open_page, profile):
    browser = open_page(profile)
    shown(browser, ["all", "main", "grow", "work", "fill"])
    bars = frames(browser)
    (whole,) = bars["all"]
    assert len(bars["grow"]) == 3
    for name, share in (("main", 1), ("grow", 8 / 11), ("work", 3 / 11), ("fill", 3 / 11)):
        assert bars[name][0] / whole == pytest.approx(share, abs=0.01), name
    assert browser.get_log("browser") == []
    assert blackbox.requests_of(browser) == [profile.with_suffix(".html").as_uri()]


def test_the_table_tells_what_the_terminal_does(open_page, profile):
    browser = open_page(profile)
    data = json.loads(run(profile, "--json").stdout)
    for kind, name in (("Bytes in use", "inuse_space"), ("Objects allocated", "alloc_objects")):
        press(browser, kind)
        expected = sorted(data["sites"], key=lambda site: -site["flat"][name])
        rows = table(browser)
        assert {row[0] for row in rows} == {site["name"] for site in expected if site["cum"][name]}
        assert rows[0][0] == expected[0]["name"]
        total = data["totals"][name]
        for row in rows:
            site = next(site for site in expected if site["name"] == row[0])
            assert row[2] == f"{100 * site['flat'][name] / total:.1f} %"
            assert row[4] == f"{100 * site['cum'][name] / total:.1f} %"
    press(browser, "Bytes in use")
    assert table(browser)[0] == ["grow", "8 KiB", "72.7 %", "8 KiB", "72.7 %", "/src/a.c:3"]
    browser.find_element(By.CSS_SELECTOR, "#sites [data-figure=cum] button").click()
    assert [row[0] for row in table(browser)][:2] == ["main", "grow"]
    facts = browser.find_element(By.CSS_SELECTOR, ".facts").text
    assert "2026-11-21 10:00:01 UTC" in facts and "11 KiB" in facts
    regions = [one.accessible_name for one in browser.find_elements(By.CSS_SELECTOR, "section, [role=region]")]
    assert {"Where it comes from", "Sites"} < set(regions) and len(regions) == len(set(regions)), "a reader's landmarks"


def test_comments_leave_room_for_the_graph(open_page, tmp_path):
    """HAKMEM writes four comments. They share a line, so that a laptop's first screen has the graph."""
    making, comments = known(), ("hakmem 0.2.0", "samples are 16384 bytes apart in the mean; stacks by unwind tables",
                                 "process 26077", "peak of what is in use: 13126 ms after the start")
    making.profile.comment.extend(map(making.text, comments))
    browser = open_page(making.write(tmp_path / "told.pb"))
    shown(browser, ["all", "main", "grow", "work", "fill"])
    assert browser.find_element(By.CLASS_NAME, "comments").text == " · ".join(comments)
    assert browser.execute_script("return document.getElementById('graph').getBoundingClientRect().top") < 360


def test_a_click_zooms_and_reset_shows_all_again(open_page, profile):
    browser = open_page(profile)
    shown(browser, ["all", "main", "grow", "work", "fill"])
    (whole,) = frames(browser)["all"]
    frame(browser, "work").click()
    shown(browser, ["all", "main", "work", "fill"])
    assert frames(browser)["fill"] == [pytest.approx(whole, abs=1)]
    browser.find_element(By.ID, "reset").click()
    shown(browser, ["all", "main", "grow", "work", "fill"])
    assert frames(browser)["fill"][0] < whole / 2


def test_search_highlights_and_adds_up(open_page, profile):
    browser = open_page(profile)
    shown(browser, ["all", "main", "grow", "work", "fill"])
    assert highlighted(browser) == []
    search(browser, "FILL|work")
    assert highlighted(browser) == ["fill", "work"]
    assert found_text(browser) == "2 bars found, with 3 KiB, 27.3 %"
    search(browser, "((")
    assert highlighted(browser) == [] and found_text(browser) == "0 bars found, with 0 B, 0.0 %"
    browser.execute_script("const s = document.getElementById('search'); s.value = ''; "
                           "s.dispatchEvent(new Event('input'))")
    assert found_text(browser) == ""
    next(button for button in browser.find_elements(By.CSS_SELECTOR, "#sites tbody button")
         if button.text == "grow").click()
    assert highlighted(browser) == ["grow"] * 3


def test_switching_between_kinds(open_page, profile):
    browser = open_page(profile)
    assert [button.text for button in browser.find_elements(By.CSS_SELECTOR, "[data-kind]")] == KINDS
    search(browser, "pour")
    assert found_text(browser).startswith("0 bars")
    press(browser, "Bytes allocated")
    shown(browser, ["all", "main", "grow", "work", "fill", "pour"])
    assert highlighted(browser) == ["pour"] and found_text(browser) == "1 bar found, with 1 MiB, 98.7 %"
    pressed = browser.find_elements(By.CSS_SELECTOR, "[data-kind][aria-pressed=true]")
    assert [button.text for button in pressed] == ["Bytes allocated"]
    press(browser, "Objects allocated")
    # While the graph is redrawn, bars of both drawings may be found, or none.
    wait_for(lambda: share(frames(browser), "fill") == pytest.approx(10 / 1013, abs=0.002), "the share of objects")


def test_what_is_chosen_on_the_command_line_is_shown_first(open_page, profile):
    browser = open_page(profile, "--alloc", "--objects", "--focus", "work", "--lines")
    pressed = browser.find_elements(By.CSS_SELECTOR, "[data-kind][aria-pressed=true]")
    assert [button.text for button in pressed] == ["Objects allocated"]
    assert "grow" not in frames(browser)
    assert ["fill", "10", "1.0 %", "10", "1.0 %", "/src/a.c:7"] in table(browser)


def test_a_difference_has_colors_and_signs(open_page, profile, tmp_path):
    later = known()
    later.profile.sample[0].value[:] = [20, 8192, 14, 5120]
    later.profile.sample[3].value[:] = [1, 8192, 0, 4096]
    browser = open_page(later.write(tmp_path / "later.pb"), "--diff", profile)
    rows = {row[0]: row[1] for row in table(browser)}
    assert rows["fill"] == "+4 KiB" and rows["grow"] == "-4 KiB"
    assert {row[0]: row[2] for row in table(browser)}["fill"] == "36.4 %"
    fills = dict(browser.execute_script(
        "return [...document.querySelectorAll('#graph g.frame')].map(e => "
        "[e.getAttribute('name'), e.querySelector('rect').getAttribute('fill')])"))
    assert fills["fill"].startswith("hsl(5 ") and fills["grow"].startswith("hsl(215 ")


def test_the_smallest_bars_of_too_many_are_left_out(open_page, tmp_path, monkeypatch):
    monkeypatch.setattr("hakmem.heap.page.MOST_NODES", 4)
    making = Making()
    for number in range(1, 11):
        making.stack(named(f"site{number}", "main"), 1, 100 * number, 1, 100 * number)
    browser = open_page(making.write(tmp_path / "many.pb"))
    shown(browser, ["all", "main", "site9", "site10"])
    assert browser.find_element(By.ID, "left").text == (
        "The graph leaves out the 8 smallest bars; the table counts all.")
    assert len(table(browser)) == 11


def test_lifetimes_are_a_column_and_no_kind(open_page, tmp_path):
    browser = open_page(with_lives().write(tmp_path / "lives.pb"))
    assert [button.text for button in browser.find_elements(By.CSS_SELECTOR, "[data-kind]")] == KINDS
    assert [row[5] for row in table(browser)] == ["-", "1.82 s", "-"]
    press(browser, "Objects in use")
    assert table(browser)[0] == ["fill", "20", "80.0 %", "20", "80.0 %", "1.82 s", "/src/a.c:1"]


def test_sizes_are_a_column(open_page, tmp_path):
    making = Making().stack(named("fill", "main"), 10, 640, 10, 640, size=64)
    making.stack(named("fill", "main"), 2, 2048, 1, 1024, size=1024)
    browser = open_page(making.write(tmp_path / "sizes.pb"))
    assert {row[0]: row[5] for row in table(browser)} == {"fill": "1 KiB 62 %, 64 B 38 %", "main": ""}
    press(browser, "Objects allocated")
    assert {row[0]: row[5] for row in table(browser)}["fill"] == "64 B 83 %, 1 KiB 17 %"


def test_names_are_text(open_page, tmp_path):
    profile = Making().stack(named(HOSTILE, "main"), 1, 1, 1, 1).write(tmp_path / "hostile.pb")
    browser = open_page(profile)
    shown(browser, ["all", "main", HOSTILE])
    assert table(browser)[0][0] == HOSTILE
    assert browser.get_log("browser") == []


def test_nothing_in_use(open_page, tmp_path):
    profile = Making().stack(named("a", "main"), 5, 50, 0, 0).write(tmp_path / "freed.pb")
    browser = open_page(profile)
    assert browser.find_element(By.ID, "graph").text == "Nothing of this kind is in the profile."
    press(browser, "Bytes allocated")
    shown(browser, ["all", "main", "a"])


def test_narrow_dark_and_resized(open_page, profile):
    browser = open_page(profile, width=400, dark=True)
    shown(browser, ["all", "main", "grow", "work", "fill"])
    narrow = frames(browser)["all"][0]
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 1000, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    # The page redraws it meanwhile.
    wait_for(lambda: frames(browser).get("all", [0])[0] > 2 * narrow, "a wider graph")


def test_the_picture_for_the_documents(open_page, tmp_path):
    """HAKMEM_PICTURES=FOLDER keeps the picture, which is how docs/images/flame.png is made."""
    browser = open_page(server_like().write(tmp_path / "server.pb"))
    wait_for(lambda: len(frames(browser)) > 20, "the bars")
    search(browser, "^cache::")
    wait_for(lambda: highlighted(browser).count("cache::Table::insert") >= 1, "what was searched")
    picture = Path(os.environ.get("HAKMEM_PICTURES", tmp_path)) / "flame.png"
    time.sleep(0.3)  # labels are written after a transition of no length
    assert browser.save_screenshot(str(picture)) and picture.stat().st_size > 20000
