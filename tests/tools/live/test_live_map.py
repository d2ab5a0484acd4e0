"""Protects the map in a real browser: it is drawn, answers pointer and keys, and fetches nothing.

HAKMEM_PICTURES=FOLDER keeps the picture, which is how docs/images/map.png is made.
"""

import os
from pathlib import Path

import blackbox
import pytest
from chromium import chromium
from conftest import HERE
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from hakmem.live import ProcessMemory, snapshot
from hakmem.units import bytes_column


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


def colors(browser):
    """The number of colours on the canvas."""
    return browser.execute_script("""
        const canvas = document.getElementById("map");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size""")


def open_map(browser, hakmem, program, page):
    """Makes the map, which has no errors and asks for nothing but itself. Returns a snapshot of the same moment."""
    assert str(page) in hakmem("map", program.pid, "-o", page)
    shot = snapshot(ProcessMemory(program.pid))
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
    assert browser.get_log("browser") == []
    assert [url for url in blackbox.requests_of(browser) if not url.startswith("data:")] == [page.as_uri()]
    return shot


def told(browser):
    return browser.find_element(By.ID, "told").text


def test_map(start, compiled, library, hakmem, browser, tmp_path):
    # A process may have any name, which is text and nothing else.
    path = tmp_path / "<b>x<i>&"
    path.write_bytes(compiled(HERE / "known.c").read_bytes())
    path.chmod(0o755)
    program = start([path], library, {"HAKMEM_PURGE_DELAY": "3600000"})
    for size, count in ((3000, 5000), (700, 4000), (48, 9000), (20000, 300), (100000, 40), (5 << 20, 2)):
        program.ask("take", size, count)
    address = int(program.ask("take", 40000, 1)[0])
    waiting = program.ask("thread", 1500, 3000)[0]
    for size in (3000, 700):
        program.ask("drop", size, 3)
    program.ask("drop", 20000, 1)
    shot = open_map(browser, hakmem, program, tmp_path / "map.html")
    assert f"({program.pid})" in browser.title and shot.version in browser.title
    assert path.name in browser.find_element(By.TAG_NAME, "h1").text
    assert browser.find_elements(By.CSS_SELECTOR, "h1 b") == []
    assert f"{len(shot.superslabs)} SuperSlabs" in browser.page_source
    assert "" not in [head.text for head in browser.find_elements(By.CSS_SELECTOR, "thead th")]

    # The legend's colours differ by at least 60 in the sum of red, green and blue, of 255 each.
    shades = browser.execute_script("""
        return [...document.querySelectorAll("#legend button")].filter(entry => entry.dataset.key >= 0).map(
            entry => getComputedStyle(entry.firstChild).backgroundColor.match(/\\d+/g).map(Number))""")
    assert len(shades) >= 7 and colors(browser) > 20
    apart = [sum(abs(one - other) for one, other in zip(first, second, strict=True))
             for place, first in enumerate(shades) for second in shades[:place]]
    assert min(apart) >= 60, sorted(apart)[:3]
    if pictures := os.environ.get("HAKMEM_PICTURES"):
        browser.save_screenshot(str(Path(pictures, "map.png")))

    # Points at the unit of the program's block of 40000 bytes.
    row, superslab = next((row, one) for row, one in enumerate(shot.superslabs) if 0 <= address - one.address < 2 << 20)
    unit = (address - superslab.address) // shot.unit_size
    browser.execute_script("document.getElementById('window').scrollIntoView({block: 'start'})")
    place = browser.execute_script("""
        const box = document.getElementById("window"), canvas = document.getElementById("map");
        box.scrollTop = Math.max(0, arguments[0] * 18 - 90);
        const cell = Math.max(5, Math.floor((box.clientWidth - 104 - 8) / 31));
        const at = canvas.getBoundingClientRect();
        return [at.left + 104 + (arguments[1] - 0.5) * cell, at.top + (arguments[0] + 0.5) * 18 - box.scrollTop]""",
        row, unit)
    actions = ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(int(place[0]), int(place[1]))
    actions.perform()
    hint = browser.find_element(By.ID, "hint")
    assert hint.is_displayed()
    assert all(word in hint.text for word in (f"SuperSlab {superslab.number} ", "40,960", f"thread {program.pid}"))

    # The same by keys, from the first unit on.
    browser.find_element(By.ID, "window").send_keys(Keys.ARROW_LEFT)
    assert all(word in told(browser) for word in (f"SuperSlab {superslab.number} ", f"unit {max(unit - 1, 1)} "))

    # Other views, and one entry of the legend selected.
    for view, wanted in (("state", "dirty"), ("fill", "cached"), ("owner", f"thread {waiting}"), ("class", "3 KiB")):
        browser.find_element(By.CSS_SELECTOR, f"[data-view={view}]").click()
        assert colors(browser) > 3 and wanted in browser.find_element(By.ID, "legend").text
    before = browser.find_element(By.ID, "map").screenshot_as_png
    browser.find_element(By.CSS_SELECTOR, "#legend button").click()
    assert browser.find_element(By.ID, "map").screenshot_as_png != before
    assert browser.find_element(By.CSS_SELECTOR, "#legend button").get_attribute("aria-pressed") == "true"


def test_guard_units(start, compiled, library, hakmem, browser, tmp_path):
    """Each guard unit is drawn, is in the legend of every view, and is named in words by keys."""
    program = start([compiled(HERE / "known.c")], library.with_name("libhakmem-secure.so"), {})
    program.ask("take", 700, 5000)  # fills three SuperSlabs
    shot = open_map(browser, hakmem, program, tmp_path / "map.html")
    guards = sum(pool.guard_units for pool in shot.pools)
    assert guards >= 16 * sum(pool.superslabs for pool in shot.pools if pool.tier == "FULL") >= 16
    assert bytes_column(guards * shot.unit_size) in browser.find_element(By.ID, "totals").text
    for view in ("class", "state", "fill", "owner"):
        browser.find_element(By.CSS_SELECTOR, f"[data-view={view}]").click()
        entry = browser.find_element(By.XPATH, "//div[@id='legend']/button[starts-with(., 'guard')]")
        assert entry.text.endswith(f" {guards}")
    before = browser.find_element(By.ID, "map").screenshot_as_png
    entry.click()
    assert browser.find_element(By.ID, "map").screenshot_as_png != before

    # The first unit of a SuperSlab in use is a guard unit.
    row, superslab = next((row, one) for row, one in enumerate(shot.superslabs) if one.tier == "FULL")
    browser.find_element(By.ID, "window").send_keys(Keys.ARROW_RIGHT, *[Keys.ARROW_DOWN] * row)
    assert all(word in told(browser) for word in (
        f"SuperSlab {superslab.number} ", f"unit 1 at {superslab.address + shot.unit_size:#x}", "guard unit"))
