"""Protects the heap profile on the page: on and off behind the token, and the flame graph."""

import json
import os
import re
import sys

import blackbox
import pytest
from browsing import looks
from chromium import chromium
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from serving import serving, until

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/heap"))

from pages import highlighted  # noqa: E402
from steady import FLAGS, SOURCE, steady  # noqa: E402


@pytest.fixture(scope="module")
def running(compiled, library):
    with steady(compiled(SOURCE, *FLAGS), library, HAKMEM_HEAP_PROFILE_RATE="4K") as process:
        process.tell("pulse")
        yield process


@pytest.fixture(scope="module")
def served(running):
    with serving(running.pid, "--interval", "0.2") as server:
        yield server


def posted(server, path, **more):
    status, _, body = server.get(path, method="POST", data=b"", **more)
    return status, json.loads(body)


def test_on_and_off(served, running):
    assert served.json(f"api/profile/{running.pid}") == {"on": False, "mean": 0, "sites": 0, "can": True,
                                                         "may_write": True}
    status, state = posted(served, f"api/profile/{running.pid}?on=1&rate=8192")
    assert status == 200 and state["on"] and state["mean"] == 8192, state
    running.tell("keep", 2000, 5000)
    answer = served.json(f"api/flame/{running.pid}")
    root = answer["root"]

    def find(node, name):
        return node if node[0] == name else next((found for child in node[3] if (found := find(child, name))), None)
    assert 8e6 < find(root, "keep_many")[2] < 13e6 and find(find(root, "main"), "keep_hay")
    (kept,) = (site for site in answer["sizes"] if site["name"] == "keep_hay")
    assert 8e6 < kept["value"] < 13e6 and kept["sizes"][0]["value"] == kept["value"], "blocks of one size"
    assert answer["temporary"]["heads"][0] == "1" and all(
        len(site["counts"]) == len(answer["temporary"]["heads"]) for site in answer["temporary"]["sites"])
    status, headers, page = served.get(f"flame/{running.pid}")
    assert status == 200 and headers.get_content_type() == "text/html" and b"keep_hay" in page
    status, state = posted(served, f"api/profile/{running.pid}?on=0")
    assert status == 200 and not state["on"]
    running.tell("drop")


def test_who_may(served, running):
    path = f"api/profile/{running.pid}?on=1"
    assert posted(served, path, token=False)[0] == 401
    status, answer = posted(served, path, headers={"Origin": "http://elsewhere.example"})
    assert status == 403 and "another site" in answer["error"]
    assert posted(served, f"api/profile/{running.pid}?on=2")[0] == 400
    assert posted(served, f"api/profile/{running.pid}")[0] == 400
    assert "is not served here" in posted(served, "api/profile/1?on=1")[1]["error"]
    assert "kind is one of" in served.refused(f"api/flame/{running.pid}?kind=none", 400)
    assert not served.json(f"api/profile/{running.pid}")["on"]


def test_without_a_token_nothing_is_written(running):
    with serving(running.pid, "--no-token") as server:
        status, answer = posted(server, f"api/profile/{running.pid}?on=1")
        assert status == 403 and "without a token writes into no process" in answer["error"]
        state = server.json(f"api/profile/{running.pid}")
        assert not state["may_write"] and not state["on"]


def cells(browser, table):
    return browser.execute_script("return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
                                  ".map(row => [...row.cells].map(cell => cell.textContent))", table)


def path(browser):
    """The names of the bars above which the graph shows no siblings: the way to the bar it is zoomed to."""
    return browser.execute_script("return [...document.querySelectorAll('#graph g.fade')]"
                                  ".map(bar => bar.getAttribute('name'))")


def focused(browser):
    """(name, number of callers) of the bar that has the focus."""
    return browser.execute_script("const bar = document.activeElement;"
                                  "return [bar.getAttribute('name'), Number(bar.getAttribute('aria-level')) - 1]")


def drawn_again(browser):
    """Waits until the page has drawn another graph in place of the present one."""
    browser.execute_script("document.querySelector('#graph svg').dataset.old = 'yes'")
    until(lambda: browser.execute_script("return !document.querySelector('#graph svg').dataset.old"), "another graph")


def press(browser, *keys):
    """Presses keys in whatever has the focus: the graph may be drawn anew at any time."""
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def check_keys(browser):
    """Goes through the graph, which is zoomed to keep_many, by the keyboard. Zoom and focus outlive a new graph."""
    above = path(browser)
    browser.execute_script("document.querySelector('#graph [tabindex=\"0\"]').focus()")
    press(browser, Keys.HOME, *[Keys.ARROW_DOWN] * len(above))
    assert focused(browser) == ["keep_many", len(above)]
    drawn_again(browser)
    assert path(browser) == above and focused(browser) == ["keep_many", len(above)]
    assert browser.find_element(By.ID, "details").text.startswith("keep_many: ")
    press(browser, Keys.ESCAPE)
    assert path(browser) == above[:-1] and focused(browser) == ["keep_many", len(above)]
    press(browser, Keys.ENTER)
    assert path(browser) == above
    graph = browser.find_element(By.ID, "graph")
    assert graph.aria_role == "tree" and graph.accessible_name.startswith("Flame graph")
    assert browser.execute_script("return document.activeElement.getAttribute('role')") == "treeitem"


def check_search(browser):
    """Searches the graph. The next graph has the same bars found."""
    press(browser, "/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "search"
    field.send_keys("keep_h.y")
    for _ in range(2):
        assert set(highlighted(browser)) == {"keep_hay"}
        assert re.fullmatch(r"\d+ bars? found, with .* MiB, .* %", browser.find_element(By.ID, "found").text)
        drawn_again(browser)
    field.clear()
    until(lambda: not highlighted(browser), "nothing is searched")


def test_the_page(served, running, tmp_path):
    def script(text, *values):
        return browser.execute_script(text, *values)

    def names():
        return script("return [...document.querySelectorAll('#graph g.frame')].map(bar => bar.getAttribute('name'))")

    def said(selector):
        return script("return document.querySelector(arguments[0]).textContent", selector)
    with chromium(tmp_path, height=1700) as browser:
        browser.get(served.page)
        until(lambda: looks(browser) >= 3 and said("#profile-switch") == "Take a heap profile", "the switch")
        # The charts' keys have values although the pointer is elsewhere.
        keys = script("return [...document.querySelectorAll('#chart-memory .u-value')].map(value => value.textContent)")
        assert len(keys) == 7 and all(key not in ("-", "--", "") for key in keys), keys
        script("document.getElementById('profile-switch').click()")
        until(lambda: said("#profile-state").startswith("being taken, a sample every 4.00 KiB"), "the profile")
        running.tell("keep", 2000, 5000)
        until(lambda: "keep_hay" in names(), "the flame graph")
        sizes = cells(browser, "sizes")
        kept = [row[0] for row in sizes].index("keep_hay")
        assert sizes[kept + 1][1] == "2 KiB" and sizes[kept + 1][3] == "100.0 %", sizes
        bars = script("return [...document.querySelectorAll('#sizes .bar')].map(bar => "
                      "[bar.style.width, bar.closest('tr').cells[3].textContent])")
        assert bars and all(f"{float(width.rstrip('%') or -1):.1f} %" == share for width, share in bars), bars
        region = browser.find_element(By.CSS_SELECTOR, "[aria-label='Temporary blocks']")
        assert region.aria_role == "region" and region.get_attribute("tabindex") == "0"
        script("document.querySelector('#graph g[name=keep_many]').dispatchEvent(new MouseEvent('click', "
               "{bubbles: true}))")
        assert len(path(browser)) >= 2 and set(path(browser)) < set(names())
        check_keys(browser)
        check_search(browser)
        script("document.getElementById('flame-pause').click()")
        paused = names()
        running.tell("drop")
        assert said("#flame-pause") == "Go on" and names() == paused
        script("document.getElementById('flame-pause').click(); document.getElementById('flame-kind').value = "
               "'alloc_objects';"
               "document.getElementById('flame-kind').dispatchEvent(new Event('change'))")
        # "drop" freed 5,000 blocks from the last one on, and before that 5,000 that were in use after a profile's end.

        def temporary():
            row = next((row for row in cells(browser, "temporary") if row[0] == "keep_hay"), None)
            return [float(text.split()[0]) for text in row[6:]] if row else [0]
        until(lambda: temporary()[0] > 35, "the temporary blocks")
        assert sum(temporary()) == pytest.approx(100, abs=1)
        assert script("return document.querySelector('#flame-file').getAttribute('href')"
                      ) == f"flame/{running.pid}?kind=alloc_objects"
        script("document.getElementById('profile-switch').click()")
        until(lambda: said("#profile-state").startswith("stopped"), "the end")
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        browser.save_screenshot(str(tmp_path / "page.png"))
        keep = os.environ.get("HAKMEM_PICTURES")
        if keep:
            (tmp_path / "page.png").rename(f"{keep}/serve-profile.png")
