"""Protects the keyboard in flame graphs: Tab, arrows, Enter, Escape and the search reach bars, which a reader names."""

import pytest
from making import known
from pages import frames, highlighted, shown, wait_for
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ALL = ["all", "main", "grow", "work", "fill"]


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def focused(browser):
    return browser.execute_script("return document.activeElement.getAttribute('name')")


def into_graph(browser):
    """Tab leads from the button before the graph to its one bar in the order of Tab."""
    browser.execute_script("document.getElementById('reset').focus()")
    press(browser, Keys.TAB)


@pytest.fixture
def page(open_page, tmp_path):
    browser = open_page(known().write(tmp_path / "known.pb"))
    shown(browser, ALL)
    return browser


def test_arrows_move(page):
    into_graph(page)
    assert focused(page) == "all"
    walked = []
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_UP,
                Keys.ARROW_UP, Keys.HOME, Keys.ARROW_UP):
        press(page, key)
        walked.append(focused(page))
    assert walked == ["main", "grow", "work", "fill", "grow", "grow", "main", "all", "all"]
    assert page.find_element(By.ID, "details").text.startswith("all: 11 KiB, 100.0 %")
    press(page, Keys.ARROW_DOWN, Keys.TAB)
    assert focused(page) is None, "Tab leaves the graph"
    page.execute_script("document.getElementById('reset').focus()")
    press(page, Keys.TAB)
    assert focused(page) == "main", "and comes back to where it was"


def test_enter_zooms_and_escape_zooms_out(page):
    whole = frames(page)["all"][0]
    into_graph(page)
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    shown(page, ["all", "main", "work", "fill"])
    assert focused(page) == "work" and frames(page)["fill"] == [pytest.approx(whole, abs=1)]
    press(page, Keys.ESCAPE)
    shown(page, ALL)
    assert focused(page) == "work" and frames(page)["work"][0] < whole / 2
    press(page, Keys.ENTER)
    shown(page, ["all", "main", "work", "fill"])
    page.find_element(By.ID, "reset").click()
    shown(page, ALL)


def test_slash_searches(page):
    into_graph(page)
    press(page, "/")
    assert page.switch_to.active_element.get_attribute("id") == "search"
    press(page, "fill")
    wait_for(lambda: highlighted(page) == ["fill"], "the bar that was searched")
    press(page, Keys.ENTER)
    assert focused(page) == "fill"
    page.execute_script("document.getElementById('search').focus()")
    press(page, "/")
    assert page.find_element(By.ID, "search").get_attribute("value") == "fill/", "in the field it is a letter"


def test_a_reader_finds_a_tree(page):
    graph = page.find_element(By.ID, "graph")
    assert graph.aria_role == "tree" and graph.accessible_name.startswith("Flame graph")
    bars = page.find_elements(By.CSS_SELECTOR, "#graph g.frame")
    assert {bar.aria_role for bar in bars} == {"treeitem"}
    assert {bar.get_attribute("name"): bar.get_attribute("aria-level") for bar in bars}["fill"] == "4"
    assert [bar.accessible_name for bar in bars if bar.get_attribute("name") == "work"] == [
        "work: 3 KiB, 27.3 % (/src/a.c)"]
    assert [bar.get_attribute("tabindex") for bar in bars].count("0") == 1


def test_the_focus_is_seen(page):
    into_graph(page)
    press(page, Keys.ARROW_DOWN)
    outlines = page.execute_script(
        "return [...document.querySelectorAll('#graph g.frame')].map(bar => [bar.getAttribute('name'), "
        "getComputedStyle(bar.querySelector('rect')).outlineStyle])")
    assert [name for name, style in outlines if style == "solid"] == ["main"]


def test_a_zoomed_graph_is_whole_again_after_the_window_changed(page):
    def height():
        return page.execute_script("return document.querySelector('#graph svg').getBoundingClientRect().height")
    whole = height()
    into_graph(page)
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    shown(page, ["all", "main", "work", "fill"])
    assert height() < whole, "no room for rows that are not there"
    page.execute_script("document.querySelector('#graph svg').dataset.old = 'yes'")
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                         {"width": 700, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    wait_for(lambda: page.execute_script("return !document.querySelector('#graph svg').dataset.old"), "another graph")
    shown(page, ["all", "main", "work", "fill"])
    assert focused(page) == "work"
    page.find_element(By.ID, "reset").click()
    shown(page, ALL)
    assert height() == whole
