"""Protects the pages of `hakmem heap` in a real browser: figures, zoom, search, keys, and no request to elsewhere.

One browser has all pages. Each page is opened once, or once for each color scheme."""

import json
import re

import blackbox
import pytest
from making import TIME, Making, at_moments, known, named, run, with_lives, with_own_frees, with_sizes
from pages import frames, highlighted, moving, shown, wait_for
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from hakmem.units import bytes_text

# The page must show this as text, and never as markup.
HOSTILE = "</script><script>alert('x')</script><b>"
ALL = ["all", "main", "grow", "work", "fill"]
BELOW_WORK = ["all", "main", "work", "fill"]


def table(browser, name="sites"):
    """The texts of a table's cells."""
    return browser.execute_script("return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map(r => "
                                  "[...r.cells].map(c => c.textContent))", name)


def choose(browser, kind):
    """Presses the button of a sample type: 0 objects allocated, 1 bytes allocated, 2 objects in use, 3 bytes in use."""
    browser.find_element(By.CSS_SELECTOR, f"[data-kind='{kind}']").click()


def chosen(browser):
    return [button.get_attribute("data-kind")
            for button in browser.find_elements(By.CSS_SELECTOR, "[data-kind][aria-pressed=true]")]


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def focused(browser):
    return browser.execute_script("return document.activeElement.getAttribute('name')")


def into_graph(browser):
    """Tab leads from the button before the graph to its one bar in the order of Tab."""
    browser.execute_script("document.getElementById('reset').focus()")
    press(browser, Keys.TAB)


def search(browser, text):
    """Types into the field. Returns the bars that have the color of what was found, and the text beside the field."""
    field = browser.find_element(By.ID, "search")
    browser.execute_script("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", field)
    field.send_keys(text)
    return highlighted(browser), browser.find_element(By.ID, "found").text


def quiet(browser):
    """Whether the page has reported no error."""
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_profile(open_page, tmp_path):
    profile = known().write(tmp_path / "known.pb")
    browser = open_page(profile)
    check_bars(browser, profile)
    check_table(browser, profile)
    check_search(browser)
    check_keys(browser)
    check_kinds(browser)
    check_size(browser)
    assert quiet(browser)


def check_bars(browser, profile):
    """Bars are as wide as their share. The page asks for nothing but itself."""
    shown(browser, ALL)
    bars = frames(browser)
    (whole,) = bars["all"]
    assert len(bars["grow"]) == 3
    for name, share in (("main", 1), ("grow", 8 / 11), ("work", 3 / 11), ("fill", 3 / 11)):
        assert bars[name][0] / whole == pytest.approx(share, abs=0.01), name
    assert blackbox.requests_of(browser) == [profile.with_suffix(".html").as_uri()]
    next(element for element in browser.find_elements(By.CSS_SELECTOR, "#graph g.frame")
         if element.get_attribute("name") == "work").click()
    shown(browser, BELOW_WORK)
    assert frames(browser)["fill"] == [pytest.approx(whole, abs=1)]
    browser.find_element(By.ID, "reset").click()
    shown(browser, ALL)
    assert frames(browser)["fill"][0] < whole / 2


def check_table(browser, profile):
    """The table has the terminal's figures, for each sample type."""
    data = json.loads(run(profile, "--json").stdout)
    for kind, name in ((0, "alloc_objects"), (3, "inuse_space")):
        choose(browser, kind)
        rows, total = table(browser), data["totals"][name]
        sites = {site["name"]: site for site in data["sites"] if site["cum"][name]}
        assert {row[0] for row in rows} == set(sites)
        assert rows[0][0] == max(sites.values(), key=lambda site: site["flat"][name])["name"]
        for row in rows:
            flat, cum = sites[row[0]]["flat"][name], sites[row[0]]["cum"][name]
            show = bytes_text if name.endswith("space") else "{:,}".format
            assert row[1:5] == [show(flat), f"{100 * flat / total:.1f} %", show(cum), f"{100 * cum / total:.1f} %"]
            assert row[5].startswith("/src/a.c")
    browser.find_element(By.CSS_SELECTOR, "#sites [data-figure=cum] button").click()
    assert [row[0] for row in table(browser)][:2] == ["main", "grow"]
    assert "2026-11-21 10:00:01 UTC" in browser.find_element(By.CSS_SELECTOR, ".facts").text
    regions = [one.accessible_name for one in browser.find_elements(By.CSS_SELECTOR, "section, [role=region]")]
    assert all(regions) and len(regions) == len(set(regions)) >= 2, "a reader's landmarks"


def check_search(browser):
    assert highlighted(browser) == []
    found, text = search(browser, "FILL|work")
    assert found == ["fill", "work"] and "3 KiB" in text and "27.3 %" in text
    found, text = search(browser, "((")
    assert found == [] and "0 B" in text
    assert search(browser, "") == ([], "")
    next(button for button in browser.find_elements(By.CSS_SELECTOR, "#sites tbody button")
         if button.text == "grow").click()
    assert highlighted(browser) == ["grow"] * 3
    search(browser, "")


def check_keys(browser):
    """Tab, arrows, Enter, Escape and the search reach bars, which a screen reader names."""
    into_graph(browser)
    press(browser, Keys.HOME)
    assert focused(browser) == "all"
    walked = []
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_UP,
                Keys.ARROW_UP, Keys.HOME, Keys.ARROW_UP):
        press(browser, key)
        walked.append(focused(browser))
    assert walked == ["main", "grow", "work", "fill", "grow", "grow", "main", "all", "all"]
    details = browser.find_element(By.ID, "details").text
    assert all(word in details for word in ("all", "11 KiB", "100.0 %"))
    press(browser, Keys.ARROW_DOWN)
    outlines = browser.execute_script(
        "return [...document.querySelectorAll('#graph g.frame')].map(bar => [bar.getAttribute('name'), "
        "getComputedStyle(bar.querySelector('rect')).outlineStyle])")
    assert [name for name, style in outlines if style == "solid"] == ["main"], "the focus is seen"
    press(browser, Keys.TAB)
    assert focused(browser) is None, "Tab leaves the graph"
    into_graph(browser)
    assert focused(browser) == "main", "and comes back to where it was"
    whole = frames(browser)["all"][0]
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    shown(browser, BELOW_WORK)
    assert focused(browser) == "work" and frames(browser)["fill"] == [pytest.approx(whole, abs=1)]
    press(browser, Keys.ESCAPE)
    shown(browser, ALL)
    assert focused(browser) == "work" and frames(browser)["work"][0] < whole / 2
    press(browser, "/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    press(browser, "fill")
    wait_for(lambda: highlighted(browser) == ["fill"], "the bar that was searched")
    press(browser, Keys.ENTER)
    assert focused(browser) == "fill"
    graph = browser.find_element(By.ID, "graph")
    assert graph.aria_role == "tree" and graph.accessible_name
    bars = browser.find_elements(By.CSS_SELECTOR, "#graph g.frame")
    assert {bar.aria_role for bar in bars} == {"treeitem"}
    assert {bar.get_attribute("name"): bar.get_attribute("aria-level") for bar in bars}["fill"] == "4"
    (name,) = (bar.accessible_name for bar in bars if bar.get_attribute("name") == "work")
    assert all(word in name for word in ("work", "3 KiB", "27.3 %", "/src/a.c"))
    assert [bar.get_attribute("tabindex") for bar in bars].count("0") == 1


def check_kinds(browser):
    """What is searched stays when another sample type is shown."""
    assert len(browser.find_elements(By.CSS_SELECTOR, "[data-kind]")) == 4
    assert search(browser, "pour")[0] == []
    choose(browser, 1)
    shown(browser, [*ALL, "pour"])
    text = browser.find_element(By.ID, "found").text
    assert highlighted(browser) == ["pour"] and "1 MiB" in text and "98.7 %" in text and chosen(browser) == ["1"]
    choose(browser, 3)
    shown(browser, ALL)


def check_size(browser):
    """A zoomed graph fits a window that became narrower, and is whole again afterwards."""
    def height():
        return browser.execute_script("return document.querySelector('#graph svg').getBoundingClientRect().height")
    whole = height()
    into_graph(browser)
    press(browser, Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    shown(browser, BELOW_WORK)
    assert height() < whole, "no room for rows that are not there"
    browser.execute_script("document.querySelector('#graph svg').dataset.old = 'yes'")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 400, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    wait_for(lambda: browser.execute_script("return !document.querySelector('#graph svg').dataset.old"),
             "another graph")
    shown(browser, BELOW_WORK)
    assert focused(browser) == "work"
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    browser.find_element(By.ID, "reset").click()
    shown(browser, ALL)
    assert height() == whole


def test_a_difference(open_page, tmp_path):
    """Signs, colors, and sizes that grew or shrank."""
    before, later = known(), known()
    for making, change in ((before, 0), (later, 4)):
        making.profile.sample[0].value[2:] = [4 + change, 1024 * (1 + change)]
        making.profile.sample[3].value[2:] = [1, 8192 - 1024 * change]
    browser = open_page(later.write(tmp_path / "later.pb"), "--diff", before.write(tmp_path / "before.pb"))
    rows = {row[0]: row[1:3] for row in table(browser)}
    assert rows["fill"] == ["+4 KiB", "36.4 %"] and rows["grow"] == ["-4 KiB", "-36.4 %"]
    fills = dict(browser.execute_script(
        "return [...document.querySelectorAll('#graph g.frame')].map(e => "
        "[e.getAttribute('name'), e.querySelector('rect').getAttribute('fill')])"))
    assert fills["fill"].split()[0] != fills["grow"].split()[0]
    later = with_sizes()
    later.profile.sample[0].value[:] = [40, 2560, 30, 1920, 0, 0]
    later.profile.sample[1].value[:] = [5, 5120, 1, 1024, 0, 0]
    browser = open_page(later.write(tmp_path / "sizes.pb"), "--diff", with_sizes().write(tmp_path / "base.pb"))
    assert [row[:5] for row in table(browser, "spreads")] == [
        ["fill", "", "-3.375 KiB", "-17.7 %", "+6"], ["", "64 B", "+640 B", "13.5 %", "+10"],
        ["", "1 KiB", "-4 KiB", "-86.5 %", "-4"]]
    assert [len(browser.find_elements(By.CSS_SELECTOR, f"#spreads {kind}")) for kind in (".bar", ".less")] == [2, 1]
    assert quiet(browser)


def test_sizes(open_page, tmp_path):
    browser = open_page(with_sizes().write(tmp_path / "sizes.pb"))
    bars = browser.execute_script("""
        return [...document.querySelectorAll("#spreads tbody tr")].map(row => {
            const bar = row.querySelector(".bar");
            return bar && bar.getBoundingClientRect().width / (bar.parentElement.clientWidth - 24)})""")
    rows = [row[:5] for row in table(browser, "spreads")]
    assert rows[0] == ["wide", "", "12.81 KiB", "67.2 %", "40"] and rows[1][2:] == ["16 B", "0.1 %", "1"]
    at = rows.index(["fill", "", "6.25 KiB", "32.8 %", "25"])
    assert rows[at + 1:at + 3] == [["", "64 B", "1.25 KiB", "20.0 %", "20"], ["", "1 KiB", "5 KiB", "80.0 %", "5"]]
    assert bars[at + 1:at + 3] == [pytest.approx(0.2, abs=0.02), pytest.approx(0.8, abs=0.02)]
    assert {row[0]: row[6] for row in table(browser)}["fill"] == "1 KiB 80 %, 64 B 20 %"
    choose(browser, 0)
    assert [row[:5] for row in table(browser, "spreads") if row[0] == "fill"] == [["fill", "", "35", "46.7 %", ""]]
    # Tab reaches the table, and from it a site's name, which searches in the graph.
    region = browser.execute_script("return document.getElementById('spreads').closest('[role=region]')")
    browser.execute_script("arguments[0].focus()", region)
    press(browser, Keys.TAB)
    name = browser.switch_to.active_element.text
    press(browser, Keys.ENTER)
    assert name == "wide" and browser.find_element(By.ID, "search").get_attribute("value") == "^wide$"
    assert quiet(browser)


def brightness(color):
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def test_lifetimes_and_temporary_blocks(open_page, tmp_path):
    making = with_own_frees()
    making.stack(named("late", "main"), 0, 0, 0, 0, 900, 0, 0, lived_from=0)
    making.stack(named("late", "main"), 0, 0, 0, 0, 0, 0, 900, calls_from=64)
    fill = ["fill", "110", "50.0 %", "50.0 %", "60.0 %", "60.0 %", "60.0 %", "20.0 %", "20.0 %"]
    late = ["late", "900", "0.0 %", "0.0 %", "0.0 %", "100.0 %", "100.0 %", "0.0 %", "0.0 %"]
    for dark in (False, True):
        browser = open_page(making.write(tmp_path / "own.pb"), dark=dark)
        assert table(browser, "temporary") == [fill, late]
        color, back = (browser.find_element(By.CSS_SELECTOR, place).value_of_css_property(name) for place, name in (
            ("#temporary tbody td", "color"), ("section", "background-color")))
        text, paper = brightness(color), brightness(back)
        assert text > 200 > 100 > paper if dark else text < 80 < 200 < paper
    # Tab reaches the table and its heads; Enter sorts. A site's name searches it in the graph.
    region = browser.execute_script("return document.getElementById('temporary').closest('[role=region]')")
    browser.execute_script("arguments[0].focus()", region)
    press(browser, Keys.TAB, Keys.ENTER)
    assert table(browser, "temporary") == [late, fill]
    heads = browser.find_elements(By.CSS_SELECTOR, "#temporary thead th")
    assert [head.get_attribute("aria-sort") for head in heads[1:3]] == ["descending", "none"]
    browser.find_element(By.CSS_SELECTOR, "#temporary tbody button").click()
    assert browser.find_element(By.ID, "search").get_attribute("value") == "^late$"
    assert quiet(browser)
    browser = open_page(with_lives().write(tmp_path / "lives.pb"))
    assert browser.find_elements(By.ID, "temporary") == []
    assert [row[5] for row in table(browser)] == ["-", "1.82 s", "-"]
    choose(browser, 2)
    assert table(browser)[0] == ["fill", "20", "80.0 %", "20", "80.0 %", "1.82 s", "/src/a.c:1"]


def test_what_the_command_line_chooses_and_odd_profiles(open_page, tmp_path, monkeypatch):
    browser = open_page(known().write(tmp_path / "known.pb"), "--alloc", "--objects", "--focus", "work", "--lines")
    assert chosen(browser) == ["0"] and "grow" not in frames(browser)
    assert ["fill", "10", "1.0 %", "10", "1.0 %", "/src/a.c:7"] in table(browser)
    # Names are text. HAKMEM writes four comments; they leave a laptop's first screen room for the graph.
    making = Making().stack(named(HOSTILE, "main"), 1, 1, 1, 1)
    making.profile.comment.extend(making.text(text) for text in (
        "hakmem 0.2.0", "samples are 16384 bytes apart in the mean; stacks by unwind tables", "process 26077",
        "peak of what is in use: 13126 ms after the start"))
    browser = open_page(making.write(tmp_path / "hostile.pb"))
    shown(browser, ["all", "main", HOSTILE])
    assert table(browser)[0][0] == HOSTILE and quiet(browser)
    assert browser.execute_script("return document.getElementById('graph').getBoundingClientRect().top") < 360
    browser = open_page(Making().stack(named("a", "main"), 5, 50, 0, 0).write(tmp_path / "freed.pb"))
    assert frames(browser) == {} and browser.find_element(By.ID, "graph").text
    choose(browser, 1)
    shown(browser, ["all", "main", "a"])
    # The smallest bars of too many are left out. The table counts all.
    monkeypatch.setattr("hakmem.heap.page.MOST_NODES", 4)
    making = Making()
    for number in range(1, 11):
        making.stack(named(f"site{number}", "main"), 1, 100 * number, 1, 100 * number)
    browser = open_page(making.write(tmp_path / "many.pb"))
    shown(browser, ["all", "main", "site9", "site10"])
    assert re.findall(r"\d+", browser.find_element(By.ID, "left").text) == ["8"] and len(table(browser)) == 11


def timeline(browser, folder, files, scheme="light"):
    page = folder / "timeline.html"
    done = run("--timeline", "--html", page, *files)
    assert (done.exit_code, done.stdout) == (0, f"{page}\n"), done.output
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())
    wait_for(lambda: browser.execute_script("return document.documentElement.dataset.drawn === 'yes'"), "the page")
    assert [url for url in blackbox.requests_of(browser) if not url.startswith("data:")] == [page.as_uri()]


def test_a_timeline(browser, tmp_path):
    """Moments are chosen and compared by the pointer and by keys."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    timeline(browser, tmp_path, at_moments(tmp_path))

    def click(moment, shift=False):
        """Clicks where the chart has the moment."""
        over = browser.find_element(By.CSS_SELECTOR, "#chart .u-over")
        width = over.size["width"]
        actions = ActionChains(browser).move_to_element_with_offset(over, int((moment / 2 - 0.5) * (width - 8)), 0)
        (actions.key_down(Keys.SHIFT).click().key_up(Keys.SHIFT) if shift else actions.click()).perform()

    def rows(number):
        return [row[:number] for row in table(browser)]
    assert rows(3) == [["keep", "100 KiB", "76.9 %"], ["cache", "30 KiB", "23.1 %"]]
    click(0)
    assert rows(2) == [["cache", "50 KiB"], ["keep", "40 KiB"]]
    shown(browser, ["all", "main", "work", "keep", "cache"])
    click(2)
    click(0, shift=True)
    assert rows(5) == [["keep", "100 KiB", "76.9 %", "40 KiB", "+60 KiB"],
                       ["cache", "30 KiB", "23.1 %", "50 KiB", "-20 KiB"]]
    said = browser.find_element(By.ID, "said").text
    assert "+40 KiB" in said and "90 KiB" in said
    browser.find_element(By.ID, "comparing").click()
    browser.find_element(By.ID, "moment").send_keys(Keys.ARROW_LEFT)
    assert rows(2)[0] == ["keep", "60 KiB"]
    choose(browser, 1)
    assert rows(2)[0] in (["keep", "10"], ["cache", "10"])
    # The graph obeys the keys of the other page.
    into_graph(browser)
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    wait_for(lambda: len(frames(browser)) == 4 and not moving(browser), "the graph of one site")
    press(browser, Keys.ESCAPE)
    shown(browser, ["all", "main", "work", "keep", "cache"])
    assert quiet(browser)
    # Files that a program writes by HAKMEM_HEAP_PROFILE_INTERVAL may be milliseconds apart.
    made = []
    for moment in range(3):
        making = Making()
        making.profile.time_nanos = TIME + moment * 250 * 10**6
        making.stack(named("keep:7", "main:3"), 100, 10**6, 10, 1000 * (moment + 1))
        made.append(making.write(tmp_path / f"{moment}.pb.gz"))
    timeline(browser, tmp_path, made, "dark")
    told = [browser.find_element(By.ID, "moment-time").text]
    for _ in range(2):
        browser.find_element(By.ID, "moment").send_keys(Keys.ARROW_LEFT)
        told.append(browser.find_element(By.ID, "moment-time").text)
    assert [text[-4:] for text in told] == ["01.5", "01.2", "01.0"] and quiet(browser), told
