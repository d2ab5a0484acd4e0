"""Protects the page in a real browser: it draws, its figures change, and it sends no other request."""

import busy as programs
import pytest
from browsing import looks
from chromium import chromium
from serving import serving, until

import blackbox

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), height=1500) as driver:
        yield driver


def opened(browser, server, count=2):
    # The previous test's page asks a server that has ended, and would say so in this test's log.
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(server.page)
    until(lambda: looks(browser) >= count, f"{count} looks")


def tile(browser, name):
    """The bytes of a tile."""
    text = browser.execute_script("return document.querySelector(`[data-tile='${arguments[0]}'] dd`).textContent", name)
    value, unit = text.split()
    return float(value) * UNITS[unit]


def colors(browser, chart):
    """The colours of a chart's canvas as #rrggbb, with their numbers of pixels."""
    return browser.execute_script("""
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


def cells(browser, table):
    return browser.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".map(r => [...r.cells].map(c => c.textContent))", table)


def text(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def test_figures_change_and_nothing_else_is_asked(browser, server, busy):
    opened(browser, server, 4)
    assert str(busy.pid) in text(browser, "#title") and text(browser, "#state").startswith("running on HAKMEM")
    held = next(row for row in cells(browser, "classes") if row[0] == str(programs.HELD_CLASS))
    assert int(held[2].replace(",", "")) >= programs.HELD
    assert len([row for row in cells(browser, "threads") if row[3] == "live"]) == 3
    live, rss, at = tile(browser, "live"), tile(browser, "RSS"), looks(browser)
    assert live < rss
    busy.grow(40000)
    until(lambda: tile(browser, "live") > live + (35 << 20), "40 MB more live")
    assert tile(browser, "RSS") > rss + (35 << 20) and looks(browser) > at
    # The parts are drawn: live and other are large here.
    memory = colors(browser, "chart-memory")
    assert memory.get("#2f9e44", 0) > 5000 and memory.get("#868e96", 0) > 200
    assert browser.get_log("browser") == []
    assert {url for url in blackbox.requests_of(browser) if not url.startswith((server.url, "data:"))} == set()
    # The other chart shows continuing refills. Last, because Chromium warns of a canvas that is read again and again.
    until(lambda: greenish(colors(browser, "chart-rates")) > 50, "the line of refills")


def test_links_lead_to_the_map_and_the_data(browser, server, busy):
    opened(browser, server)
    links = browser.execute_script("return [...document.querySelectorAll('.links a')].map(a => a.href)")
    assert links == [f"{server.url}map/{busy.pid}", f"{server.url}api/snapshot/{busy.pid}", f"{server.url}metrics"]
    browser.get(links[0])
    assert str(busy.pid) in browser.title and browser.get_log("browser") == []


def test_choosing_a_process_and_its_end(browser, program, library):
    with programs.busy(program, library) as first, programs.busy(program, library) as second, \
            serving(first.pid, second.pid, "--interval", "0.2") as server:
        opened(browser, server)
        assert str(first.pid) in text(browser, "#title")
        browser.execute_script("document.querySelectorAll('#processes button')[1].click()")
        until(lambda: str(second.pid) in text(browser, "#title"), "the other process")
        assert browser.execute_script("return location.hash") == f"#{second.pid}"
        browser.refresh()
        until(lambda: looks(browser) > 1 and str(second.pid) in text(browser, "#title"), "the same after reloading")
        second.end()
        until(lambda: text(browser, "#state").startswith("ended at "), "the end is told")
        assert f"process {second.pid}" in text(browser, "#state")
        assert cells(browser, "classes"), "the last picture stays"
        server.process.terminate()
        server.process.wait()
        until(lambda: text(browser, "#state") == "the server does not answer", "the server's end is told")


def test_a_picture_of_the_page(browser, server, tmp_path):
    opened(browser, server, 5)
    browser.save_screenshot(str(tmp_path / "serve.png"))
    data = (tmp_path / "serve.png").read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") >= 1200 and len(data) > 20000
