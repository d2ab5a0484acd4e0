"""Protects the map in a real browser: it is drawn, answers pointer and keys, and fetches nothing.

HAKMEM_PICTURES=FOLDER keeps the picture, which is how docs/images/map.png is made.
"""

import os
import re
from pathlib import Path

import pytest
from conftest import HERE
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import blackbox
from hakmem.live import ProcessMemory, snapshot
from hakmem.units import bytes_column


def colors(browser):
    """The number of colours on the canvas."""
    return browser.execute_script("""
        const canvas = document.getElementById("map");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size""")


def wait_for_frame(browser):
    """Waits until the page is drawn at its new size."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def test_map(start, compiled, library, hakmem, browser, tmp_path):
    page, path = tmp_path / "map.html", tmp_path / "example"
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
    assert str(page) in hakmem("map", program.pid, "-o", page)
    shot = snapshot(ProcessMemory(program.pid))

    browser.get_log("performance")
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
    assert browser.get_log("browser") == []
    assert [url for url in blackbox.requests_of(browser) if not url.startswith("data:")] == [page.as_uri()]
    assert f"({program.pid}) on HAKMEM {shot.version}" in browser.title
    assert f"{len(shot.superslabs)} SuperSlabs" in browser.page_source
    assert colors(browser) > 20
    heads = [head.text for head in browser.find_elements(By.CSS_SELECTOR, "thead th")]
    assert {"slabs", "address"} <= set(heads) and "" not in heads

    # The legend's colours differ by at least 60 in the sum of red, green and blue, of 255 each.
    shades = browser.execute_script("""
        return [...document.querySelectorAll("#legend button")].filter(entry => entry.dataset.key >= 0).map(
            entry => getComputedStyle(entry.firstChild).backgroundColor.match(/\\d+/g).map(Number))""")
    assert len(shades) >= 7
    apart = [sum(abs(one - other) for one, other in zip(first, second, strict=True))
             for place, first in enumerate(shades) for second in shades[:place]]
    assert min(apart) >= 60, sorted(apart)[:3]

    browser.set_window_size(1200, 1240)
    picture = Path(os.environ.get("HAKMEM_PICTURES", tmp_path)) / "map.png"
    wait_for_frame(browser)
    assert colors(browser) > 20
    assert browser.save_screenshot(picture) and picture.stat().st_size > 20000
    browser.set_window_size(1200, 1000)
    wait_for_frame(browser)

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
    assert f"SuperSlab {superslab.number} (" in hint.text and "blocks of 40,960 bytes" in hint.text
    assert f"thread {program.pid}" in hint.text

    # The same by keys, from the first unit on.
    box = browser.find_element(By.ID, "window")
    box.send_keys(Keys.ARROW_LEFT)
    told = browser.find_element(By.ID, "told").text
    assert told.startswith(f"SuperSlab {superslab.number} (") and f", unit {max(unit - 1, 1)} at 0x" in told

    # Other views, and one entry of the legend selected.
    for view in ("state", "fill", "owner", "class"):
        browser.find_element(By.CSS_SELECTOR, f"[data-view={view}]").click()
        assert colors(browser) > 3
        legend = browser.find_element(By.ID, "legend").text
        wanted = {"state": "dirty ×", "fill": "live, cached", "owner": f"thread {waiting}", "class": "3 KiB ×"}
        assert wanted.get(view) is None or wanted[view] in legend, legend
    before = browser.find_element(By.ID, "map").screenshot_as_png
    browser.find_element(By.CSS_SELECTOR, "#legend button").click()
    assert browser.find_element(By.ID, "map").screenshot_as_png != before
    assert browser.find_element(By.CSS_SELECTOR, "#legend button").get_attribute("aria-pressed") == "true"


def test_names_are_text_and_nothing_else(start, compiled, library, tmp_path, hakmem, browser):
    """A process may have any name."""
    program = tmp_path / "<b>x<i>&"
    program.write_bytes(compiled(HERE / "known.c").read_bytes())
    program.chmod(0o755)
    running, page = start([program], library), tmp_path / "map.html"
    hakmem("map", running.pid, "-o", page)
    browser.get(page.as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith(f"The heap of {program.name} (")
    assert browser.find_elements(By.CSS_SELECTOR, "h1 b") == []
    assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"


@pytest.mark.parametrize("way", ["secure", "switch"])
def test_guard_units(start, compiled, library, hakmem, browser, tmp_path, way):
    """Each guard unit is drawn, is in the legend of every view, and is named in words by pointer and keys."""
    secure = library.parent / "libhakmem-secure.so"
    program = start([compiled(HERE / "known.c")], *((secure, {}) if way == "secure" else
                                                    (library, {"HAKMEM_HARDENED": "1"})))
    program.ask("take", 700, 5000)
    page = tmp_path / "map.html"
    hakmem("map", program.pid, "-o", page)
    shot = snapshot(ProcessMemory(program.pid))
    guards = sum(pool.guard_units for pool in shot.pools)
    assert guards >= 16 * sum(pool.superslabs for pool in shot.pools if pool.tier == "FULL") >= 16
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
    total = browser.find_element(By.XPATH, "//table[@id='totals']//tr[th='guard units']").text
    assert bytes_column(guards * shot.unit_size) in total and "nobody can access them" in total
    for view in ("class", "state", "fill", "owner"):
        browser.find_element(By.CSS_SELECTOR, f"[data-view={view}]").click()
        entry = browser.find_element(By.XPATH, "//div[@id='legend']/button[starts-with(., 'guard ×')]")
        assert entry.text == f"guard × {guards}"
    before = browser.find_element(By.ID, "map").screenshot_as_png
    entry.click()
    assert browser.find_element(By.ID, "map").screenshot_as_png != before

    # The first unit of a SuperSlab in use is a guard unit, and the text beside its row counts no room there.
    row, superslab = next((row, one) for row, one in enumerate(shot.superslabs) if one.tier == "FULL")
    box = browser.find_element(By.ID, "window")
    box.send_keys(Keys.ARROW_RIGHT, *[Keys.ARROW_DOWN] * row)
    told = browser.find_element(By.ID, "told").text
    assert f", unit 1 at {superslab.address + shot.unit_size:#x}; a guard unit, which nobody can access" in told
    live = re.match(rf"SuperSlab {superslab.number} \((?:(\d+) %|FULL) live, no unit free\)", told)
    assert live and int(live[1] or 100) > 90, told
