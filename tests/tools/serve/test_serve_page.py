"""Protects the page in a real browser: it draws, its figures change, its buttons work, and it asks nobody else.

One browser has all pages. HAKMEM_PICTURES is a folder for pictures of them."""

import os
import re
import sys

import blackbox
import busy as programs
import pytest
from chromium import chromium
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from serving import looks, serving, until
from waiting import Waiting

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/heap"))

from pages import highlighted  # noqa: E402
from steady import FLAGS, SOURCE, steady  # noqa: E402

WHY = blackbox.REPOSITORY / "tests/tools/live/why.c"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), height=1700) as driver:
        yield driver


def opened(browser, server, count=2):
    # The previous test's page asks a server that has ended, and would say so in this test's log.
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(server.page)
    until(lambda: looks(browser) >= count, f"{count} looks")


def quiet(browser):
    """Whether the page has reported no error, but that a process did not answer in time."""
    return [entry for entry in browser.get_log("browser")
            if entry["level"] == "SEVERE" and " 503 " not in entry["message"]] == []


def script(browser, text, *values):
    return browser.execute_script(text, *values)


def text(browser, selector):
    return script(browser, "return document.querySelector(arguments[0]).textContent", selector)


def click(browser, name):
    script(browser, "document.getElementById(arguments[0]).click()", name)


def cells(browser, table):
    return script(browser, "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
                           ".map(r => [...r.cells].map(c => c.textContent))", table)


def tile(browser, name):
    """The bytes of a tile."""
    value, unit = text(browser, f"[data-tile='{name}'] dd").split()
    return float(value) * UNITS[unit]


def colors(browser, chart):
    """The colours of a chart's canvas as #rrggbb, with their numbers of pixels."""
    return script(browser, """
        const canvas = document.querySelector(`#${arguments[0]} canvas`), found = {};
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] < 255) continue;
            const name = "#" + [0, 1, 2].map(part => data[at + part].toString(16).padStart(2, "0")).join("");
            found[name] = (found[name] || 0) + 1;
        }
        return found;""", chart)


def greenish(found):
    """The number of pixels of a green line. A slanted line has its exact color in few of them."""
    def green(name):
        red, middle, blue = (int(name[at:at + 2], 16) for at in (1, 3, 5))
        return middle > red + 40 and middle > blue + 30
    return sum(count for name, count in found.items() if green(name))


def test_figures_change_and_nothing_else_is_asked(browser, server, busy):
    opened(browser, server, 4)
    assert str(busy.pid) in text(browser, "#title")
    held = next(row for row in cells(browser, "classes") if row[0] == str(programs.HELD_CLASS))
    assert int(held[2].replace(",", "")) >= programs.HELD
    assert len([row for row in cells(browser, "threads") if row[3] == "live"]) == 3
    live, rss, at = tile(browser, "live"), tile(browser, "RSS"), looks(browser)
    assert live < rss
    busy.grow(40000)
    until(lambda: tile(browser, "live") > live + (35 << 20), "40 MB more live")
    until(lambda: tile(browser, "RSS") > rss + (35 << 20), "40 MB more resident")
    assert looks(browser) > at
    # The parts are drawn: live and other are large here.
    memory = colors(browser, "chart-memory")
    assert memory.get("#2f9e44", 0) > 5000 and memory.get("#868e96", 0) > 200
    assert quiet(browser)
    assert {url for url in blackbox.requests_of(browser) if not url.startswith((server.url, "data:"))} == set()
    # The other chart shows continuing refills. Last, because Chromium warns of a canvas that is read again and again.
    until(lambda: greenish(colors(browser, "chart-rates")) > 50, "the line of refills")
    links = script(browser, "return [...document.querySelectorAll('.links a')].map(a => a.href)")
    assert links == [f"{server.url}map/{busy.pid}", f"{server.url}api/snapshot/{busy.pid}", f"{server.url}metrics"]
    browser.get_log("browser")
    browser.get(links[0])
    assert str(busy.pid) in browser.title and quiet(browser)


def test_choosing_a_process_and_its_end(browser, program, library):
    with programs.busy(program, library) as first, programs.busy(program, library) as second, \
            serving(first.pid, second.pid, "--interval", "0.2") as server:
        opened(browser, server)
        assert str(first.pid) in text(browser, "#title")
        script(browser, "document.querySelectorAll('#processes button')[1].click()")
        until(lambda: str(second.pid) in text(browser, "#title"), "the other process")
        assert script(browser, "return location.hash") == f"#{second.pid}"
        browser.refresh()
        until(lambda: looks(browser) > 1 and str(second.pid) in text(browser, "#title"), "the same after reloading")
        running = text(browser, "#state")
        second.end()
        until(lambda: str(second.pid) in text(browser, "#state"), "the end is told")
        ended = text(browser, "#state")
        assert ended != running and cells(browser, "classes"), "the last picture stays"
        server.process.terminate()
        server.process.wait()
        until(lambda: text(browser, "#state") not in (running, ended), "the server's end is told")


# ---- The heap profile ----


def path(browser):
    """The names of the bars above which the graph shows no siblings: the way to the bar it is zoomed to."""
    return script(browser, "return [...document.querySelectorAll('#graph g.fade')]"
                           ".map(bar => bar.getAttribute('name'))")


def focused(browser):
    """(name, number of callers) of the bar that has the focus."""
    return script(browser, "const bar = document.activeElement;"
                           "return [bar.getAttribute('name'), Number(bar.getAttribute('aria-level')) - 1]")


def drawn_again(browser):
    """Waits until the page has drawn another graph in place of the present one."""
    script(browser, "document.querySelector('#graph svg').dataset.old = 'yes'")
    until(lambda: script(browser, "return !document.querySelector('#graph svg').dataset.old"), "another graph")


def press(browser, *keys):
    """Presses keys in whatever has the focus: the graph may be drawn anew at any time."""
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def check_keys(browser):
    """Goes through the graph, which is zoomed to keep_many, by the keyboard. Zoom and focus outlive a new graph."""
    above = path(browser)
    script(browser, "document.querySelector('#graph [tabindex=\"0\"]').focus()")
    press(browser, Keys.HOME, *[Keys.ARROW_DOWN] * len(above))
    assert focused(browser) == ["keep_many", len(above)]
    drawn_again(browser)
    assert path(browser) == above and focused(browser) == ["keep_many", len(above)]
    assert "keep_many" in text(browser, "#details")
    press(browser, Keys.ESCAPE)
    assert path(browser) == above[:-1] and focused(browser) == ["keep_many", len(above)]
    press(browser, Keys.ENTER)
    assert path(browser) == above


def check_search(browser):
    """Searches the graph. The next graph has the same bars found."""
    press(browser, "/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "search"
    field.send_keys("keep_h.y")
    for _ in range(2):
        assert set(highlighted(browser)) == {"keep_hay"} and re.search(r" MiB.* %", text(browser, "#found"))
        drawn_again(browser)
    field.clear()
    until(lambda: not highlighted(browser), "nothing is searched")


def switched(browser, on):
    """Whether the button says that the profile is on, or off. If it says the opposite, presses it, in one step: an answer
    to an earlier press cannot come in between."""
    return script(browser, """
        const button = document.getElementById("profile-switch");
        if (button.dataset.on === arguments[0]) return true;
        button.click();
        return false;""", "0" if on else "1")


def test_the_heap_profile(browser, compiled, library):
    def names():
        return script(browser, "return [...document.querySelectorAll('#graph g.frame')]"
                               ".map(bar => bar.getAttribute('name'))")

    def temporary():
        row = next((row for row in cells(browser, "temporary") if row[0] == "keep_hay"), None)
        return [float(part.split()[0]) for part in row[6:]] if row else [0]
    with steady(compiled(SOURCE, *FLAGS), library, HAKMEM_HEAP_PROFILE_RATE="4K") as running, serving(
            running.pid, "--interval", "0.2") as server:
        running.tell("pulse")
        opened(browser, server, 3)
        # The charts' keys have values although the pointer is elsewhere.
        keys = script(browser, "return [...document.querySelectorAll('#chart-memory .u-value')]"
                               ".map(value => value.textContent)")
        assert len(keys) == 7 and all(key not in ("-", "--", "") for key in keys), keys
        until(lambda: text(browser, "#profile-switch"), "the switch")
        off, state = text(browser, "#profile-switch"), text(browser, "#profile-state")
        # The program follows with its next call, for which the server waits three seconds: the test may ask again.
        until(lambda: switched(browser, True), "the profile")
        until(lambda: "4.00 KiB" in text(browser, "#profile-state"), "its rate")
        on = text(browser, "#profile-state")
        # More than 1,900 samples: that there is none has a chance of 0.61^5000.
        running.tell("keep", 2000, 5000)
        until(lambda: "keep_hay" in names(), "the flame graph")
        sizes = cells(browser, "sizes")
        kept = [row[0] for row in sizes].index("keep_hay")
        assert sizes[kept + 1][1] == "2 KiB", sizes
        bars = script(browser, "return [...document.querySelectorAll('#sizes .bar')].map(bar => "
                               "[bar.style.width, bar.closest('tr').cells[3].textContent])")
        assert bars and all(f"{float(width.rstrip('%') or -1):.1f} %" == share for width, share in bars), bars
        script(browser, "document.querySelector('#graph g[name=keep_many]').dispatchEvent(new MouseEvent('click', "
                        "{bubbles: true}))")
        assert len(path(browser)) >= 2 and set(path(browser)) < set(names())
        check_keys(browser)
        check_search(browser)
        click(browser, "flame-pause")
        paused = names()
        running.tell("drop")
        drawn = looks(browser)
        until(lambda: looks(browser) > drawn + 1, "two looks")
        assert names() == paused
        click(browser, "flame-pause")
        script(browser, "const kind = document.getElementById('flame-kind'); kind.value = 'alloc_objects';"
                        "kind.dispatchEvent(new Event('change'))")
        # The thread that allocated the 5,000 blocks freed them from the last one on: 82 % of them before its next 4,096
        # allocations, and the others later.
        until(lambda: temporary()[0] > 35, "the temporary blocks")
        assert sum(temporary()) == pytest.approx(100, abs=1)
        assert browser.find_element(By.ID, "flame-file").get_attribute("href").endswith(
            f"flame/{running.pid}?kind=alloc_objects")
        if pictures := os.environ.get("HAKMEM_PICTURES"):
            browser.save_screenshot(f"{pictures}/serve-profile.png")
        until(lambda: switched(browser, False), "the end")
        until(lambda: text(browser, "#profile-switch") == off, "the button's first words")
        until(lambda: text(browser, "#profile-state") not in (on, state), "the end is told")
        assert quiet(browser)


def test_rss_by_site(browser, compiled, library):
    """In light and dark."""
    process = Waiting([compiled(WHY)], library, {
        "HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": "1", "HAKMEM_THP": "never"}).ready()
    try:
        slabs = process.ask("pin", 64, 100000)[0]
        process.ask("round", 1030, 1000)
        process.ask("half", 8 << 20, 4)
        with serving(process.pid) as server:
            opened(browser, server, 1)
            for scheme in ("light", "dark"):
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
                    {"name": "prefers-color-scheme", "value": scheme}]})
                script(browser, "document.getElementById('why-sites').replaceChildren()")
                click(browser, "why-look")
                until(lambda: len(cells(browser, "why-sites")) >= 3, "the sites")
                if pictures := os.environ.get("HAKMEM_PICTURES"):
                    browser.save_screenshot(f"{pictures}/serve-why-{scheme}.png")
            by_name = {row[0]: row for row in cells(browser, "why-sites")}
            assert by_name["pin"][5] == slabs
            assert by_name["half"][6] == "16.0 MiB" and by_name["rounded"][2] == "119 KiB"
            last = cells(browser, "why-chain")[-1]
            assert "Rss" in last[0] and last[2] == "100.0 %"
            assert script(browser, "return document.documentElement.scrollWidth <= window.innerWidth")
            assert quiet(browser)
    finally:
        process.end()
