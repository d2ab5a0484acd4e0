"""Protects the page in a real browser: it draws, sorts, selects, shows the result's figures and fetches nothing."""

import base64
import gzip
import json
import re
import struct
import zlib

import pytest
import synthetic
from blackbox import wait_for
from selenium.webdriver.common.by import By
from selenium.webdriver.support.color import Color

import blackbox
from hakmem.report import charts
from hakmem.report.page import write_page
from hakmem.report.result import ResultError

CHARTS = ["overall-time", "overall-time_programs", "overall-peak_rss", "overall-mean_rss", "scatter",
          *(f"rows-{measure}-{group}" for measure in ("time", "peak_rss", "mean_rss")
            for group in ("driver", "program"))]


def texts(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", selector)


def marks(browser, chart, kind="mark-symbol"):
    """The number of visible marks of a kind in a chart."""
    return browser.execute_script(
        "return [...document.querySelectorAll(`#chart-${arguments[0]} svg .${arguments[1]} > path`)]"
        ".filter(e => e.getBoundingClientRect().width > 0 && e.getAttribute('opacity') !== '0').length", chart, kind)


def pixels(png):
    """(width, height, rows of bytes) of a PNG with 8 bits and no interlacing, decoded here."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", png[at + 8:at + 8 + length])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    return head[0], head[1], zlib.decompress(data)


def test_charts_are_drawn_and_nothing_is_fetched(open_page, full_page, result):
    browser = open_page(full_page)
    assert browser.get_log("browser") == []
    assert [url for url in blackbox.requests_of(browser)
            if not url.startswith(("data:", "blob:"))] == [full_page.as_uri()]
    drawn = browser.execute_script("return [...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)")
    assert drawn == CHARTS
    peers = len(result["allocators"]) - 2
    for chart in CHARTS[:5]:
        assert marks(browser, chart) == peers + 1, chart
    assert marks(browser, "rows-time-driver") == len(synthetic.DRIVERS) * peers - 2, "two did not finish"
    assert marks(browser, "rows-time-program") == len(synthetic.PROGRAMS) * peers
    assert marks(browser, "rows-time-driver", "mark-rect.role-mark") == len(synthetic.DRIVERS), "the noise of each row"


def test_names_in_the_scatter_do_not_cover_each_other(open_page, full_page, result):
    for width in (380, 800, 1200):
        browser = open_page(full_page, width=width)
        boxes = browser.execute_script(
            "return [...document.querySelectorAll('#chart-scatter .mark-text.role-mark text')].map(e => {"
            "const b = e.getBoundingClientRect(); return [e.textContent, b.left, b.right, b.top + 2, b.bottom - 2]; })")
        assert len(boxes) == len(result["allocators"]) - 1
        for number, (name, left, right, top, bottom) in enumerate(boxes):
            for other, left2, right2, top2, bottom2 in boxes[:number]:
                assert left >= right2 or left2 >= right or top >= bottom2 or top2 >= bottom, (width, name, other)


def test_tables_tell_the_figures_of_the_result(open_page, full_page, result):
    browser = open_page(full_page)
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#table-all-time tbody tr')].map(r => [...r.cells].map(c => "
        "[c.firstChild.textContent, c.dataset.sort ?? '', c.querySelector('small')?.textContent ?? '', c.className]))")
    head = [name.removesuffix("↕") for name in texts(browser, "#table-all-time thead th")]
    assert [line[0][0] for line in cells] == list(result["rows"])
    compared = 0
    for line in cells:
        entries = result["summary"]["rows"][line[0][0]]
        for name, (text, sort, small, kind) in list(zip(head, line, strict=True))[3:]:
            if entries[name]["status"] != "ok":
                assert (text, sort, kind) == (entries[name]["status"], "", "bad")
            elif name == result["subject"]:
                assert float(sort) == entries[name]["time_s"]
                assert abs(seconds(text) / entries[name]["time_s"] - 1) < 0.006
            else:
                ratio = entries[name]["ratios"]["time"]
                assert float(sort) == ratio["median"] and text == f"{ratio['median']:.2f}" and kind == ratio["verdict"]
                own = small.partition(" · ")[2]
                assert abs(seconds(own) / entries[name]["time_s"] - 1) < 0.006
                compared += 1
    assert compared == 35 * 11 - 2
    overall = browser.execute_script(
        "return [...document.querySelectorAll('#table-overall tbody tr')]"
        ".map(r => [...r.cells].map(c => c.dataset.sort))")
    keys = ("time", "time_programs", "cpu", "peak_rss", "mean_rss")
    assert {line[0]: [float(value) for value in line[1:6]] for line in overall} == {
        name: [figures[key]["median"] for key in keys] for name, figures in result["summary"]["overall"].items()}


def seconds(text):
    number, unit = text.split()
    return float(number.replace(",", "")) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]


def test_what_did_not_finish_is_told(open_page, full_page):
    browser = open_page(full_page)
    for told in (texts(browser, ".failures li"), texts(browser, "#table-all-time td.bad")):
        (crashed, late) = told
        assert "SIGSEGV" in crashed and "7 of 7" in crashed and "30 s" in late and "1 of 7" in late
    listed = texts(browser, ".failures li")
    assert "hardened" in listed[0] and "larson-4" in listed[0] and "tbb" in listed[1] and "fork" in listed[1]


def test_tables_sort_on_a_click(open_page, full_page, result):
    browser = open_page(full_page)
    table = browser.find_element(By.ID, "table-all-time")
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    column = [head.text.split()[0] for head in heads].index("hardened")

    def order():
        return texts(browser, f"#table-all-time tbody tr > :nth-child({column + 1})")

    before = order()
    button = heads[column].find_element(By.TAG_NAME, "button")
    for direction, turn in (("ascending", 1), ("descending", -1)):
        browser.execute_script("arguments[0].click()", button)
        assert heads[column].get_attribute("aria-sort") == direction
        ratios = [entries["hardened"]["ratios"]["time"]["median"] for entries in result["summary"]["rows"].values()
                  if entries["hardened"]["status"] == "ok"]
        expected = [f"{ratio:.2f}" for ratio in sorted(ratios)[::turn]]
        assert [text[:4] for text in order()[:-1]] == expected
        assert order()[-1].startswith("crashed"), "without a figure last, either way"
    assert sorted(before) == sorted(order()) and before != order()
    browser.execute_script("arguments[0].click()", heads[0].find_element(By.TAG_NAME, "button"))
    assert texts(browser, "#table-all-time tbody th")[0].startswith("aligned-heavy")
    assert heads[column].get_attribute("aria-sort") is None


def test_the_legend_chooses_allocators(open_page, full_page):
    browser = open_page(full_page)

    def large():
        return browser.execute_script(
            "return [...document.querySelectorAll('#chart-rows-time-program .mark-symbol > path')]"
            ".filter(e => e.getAttribute('opacity') === '1').map(e => e.getAttribute('aria-label')"
            ".match(/allocator: ([^;]+)/)[1])")

    assert len(large()) == len(synthetic.PROGRAMS) and set(large()) != {"jemalloc"}
    button = browser.find_element(By.CSS_SELECTOR, "#legend button[data-allocator=jemalloc]")
    button.click()
    wait_for(lambda: set(large()) == {"jemalloc"}, "jemalloc alone")
    assert len(large()) == len(synthetic.PROGRAMS)
    assert button.get_attribute("aria-pressed") == "true"
    browser.find_element(By.CSS_SELECTOR, "#legend button[data-allocator='']").click()
    wait_for(lambda: set(large()) != {"jemalloc"}, "the best of each row")
    assert button.get_attribute("aria-pressed") == "false"


def test_accessibility(open_page, full_page):
    browser = open_page(full_page)
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert "hakmem" in browser.title and "2026-11-21" in browser.title
    assert len(texts(browser, "h1")) == 1 and len(texts(browser, "h2")) >= 8
    assert browser.execute_script("return document.querySelectorAll('th:not([scope])').length") == 0
    assert browser.execute_script("return [...document.querySelectorAll('table')].every(t => t.caption.textContent)")
    for chart in CHARTS:
        assert "hakmem" in browser.execute_script(
            "return document.querySelector(`#chart-${arguments[0]} svg`).getAttribute('aria-label') ?? "
            "document.querySelector(`#chart-${arguments[0]} [aria-label]`).getAttribute('aria-label')", chart)
    assert browser.execute_script("return [...document.querySelectorAll('[id]')].length === "
                                  "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_background(open_page, full_page, dark):
    browser = open_page(full_page, dark=dark)
    found = browser.execute_script(
        "const style = n => getComputedStyle(document.documentElement).getPropertyValue(n).trim();"
        "return Object.fromEntries(['back','card','text','soft','link','good','good-back','bad','bad-back','tie-back',"
        "...Array.from({length: 11}, (_, n) => `c${n}`)].map(n => [n, style(`--${n}`)]))")
    pairs = [(text, back) for text in ("text", "soft", "link") for back in ("back", "card", "tie-back")]
    for text, back in (*pairs, ("good", "good-back"), ("bad", "bad-back"), ("soft", "good-back"), ("bad", "card")):
        assert contrast(found[text], found[back]) >= 4.5, (text, back)
    for number in range(11):
        assert contrast(found[f"c{number}"], found["card"]) >= 3, f"color {number}"
    assert contrast(charts.GREY, found["card"]) >= 3
    label = browser.execute_script(
        "return document.querySelector('#chart-overall-time .mark-text.role-mark text').getAttribute('fill')")
    assert Color.from_string(label) == Color.from_string(found["text"])


def contrast(one, other):
    """The contrast ratio as WCAG 2 defines it."""
    def luminance(color):
        text = Color.from_string(color).hex
        parts = [int(text[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_narrow_pages_do_not_scroll_sideways(open_page, full_page):
    browser = open_page(full_page, width=360)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert max(browser.execute_script(
        "return [...document.querySelectorAll('.drawing svg')].map(e => e.getBoundingClientRect().right)")) <= 360


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_not_blank(open_page, full_page, tmp_path, dark):
    browser = open_page(full_page, dark=dark)
    shot = browser.get_screenshot_as_png()
    (tmp_path / "page.png").write_bytes(shot)
    width, height, data = pixels(shot)
    assert (width, height) == (1200, 1000)
    assert len(set(data)) > 100 and len(zlib.compress(data)) > 10000, tmp_path


def test_it_is_readable_without_javascript(open_page, full_page, result):
    browser = open_page(full_page, script=False)
    tables = browser.find_elements(By.CSS_SELECTOR, "#table-all-time tbody tr")
    assert len(tables) == len(result["rows"])
    assert browser.find_elements(By.CSS_SELECTOR, "thead button") == []
    assert not browser.find_element(By.ID, "legend").is_displayed()


def test_the_raw_data_is_the_result(open_page, full_page, result):
    browser = open_page(full_page)
    link = browser.find_element(By.ID, "download")
    packed = base64.b64decode(link.get_attribute("href").partition(",")[2])
    assert json.loads(gzip.decompress(packed)) == result
    link.click()
    path = browser.downloads / "2026-11-21-synthetic.json.gz"
    wait_for(path.exists, "the download")
    assert path.read_bytes() == packed


def test_what_the_result_says_is_text(open_page, tmp_path):
    name = f"{synthetic.HOSTILE}</script><img src=x onerror=alert(1)>a'b\"c\\d & {{{{ 7 * 7 }}}}"
    hostile = synthetic.small(name)
    hostile["rows"]["lua"] = {**hostile["rows"]["python-json"], "command": f"lua {name}", "about": name}
    hostile["machine"]["cpu"] = name
    hostile["options"]["name"] = {"a": [name]}
    hostile["command"] = hostile["commit"] = name
    path = tmp_path / "hostile.html"
    write_page(hostile, path)
    browser = open_page(path)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.scripts.length") == 3
    assert browser.find_elements(By.CSS_SELECTOR, "img, [onerror]") == []
    assert name in [text.removesuffix("↕") for text in texts(browser, "#table-all-time thead th")]
    assert name in texts(browser, "#chart-scatter svg text")
    assert name in texts(browser, "#legend button")
    assert len(blackbox.requests_of(browser)) == 1


def test_a_run_of_one_allocator_makes_a_page(open_page, tmp_path):
    alone = synthetic.make(synthetic.DRIVERS[:2], (), 1, {"hakmem": (1, 1)})
    alone["calls"], alone["instructions"] = [], None
    path = tmp_path / "alone.html"
    write_page(alone, path)
    browser = open_page(path)
    assert browser.get_log("browser") == []
    assert "hakmem" in texts(browser, "h1")[0] and browser.find_element(By.ID, "overall").text
    assert len(texts(browser, "#table-all-time tbody tr")) == 2


def test_noise_beyond_the_ratios_stays_in_the_chart(open_page, tmp_path):
    noisy = synthetic.small()
    noisy["summary"]["overall"]["hakmem-again"]["time"].update(low=0.2, high=5)
    noisy["date"], noisy["machine"]["memory"] = "2026-11-21T06:59:51+00:00", "24684096 kB"
    path = tmp_path / "noisy.html"
    write_page(noisy, path)
    browser = open_page(path)
    band, drawing, *names = browser.execute_script(
        "return ['.mark-rect.role-mark path', 'svg', '.role-axis-label text'].flatMap("
        "s => [...document.querySelectorAll('#chart-overall-time ' + s)]).map("
        "e => { const b = e.getBoundingClientRect(); return [b.left, b.right, e.textContent]; })")
    assert band[0] < band[1] <= drawing[1]
    assert band[0] > max(right for _, right, name in names if name in ("hakmem", "other"))
    assert texts(browser, ".facts dd")[0] == "2026-11-21 06:59 UTC"
    assert "23.5 GiB" in texts(browser, ".facts dd")


def test_the_same_result_makes_the_same_page(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_page(synthetic.small(), tmp_path / name / "page.html")
    one, other = ((tmp_path / name / "page.html").read_text() for name in ("a", "b"))
    assert one == other
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", one.partition("<script>")[0])


def test_a_wrong_result_makes_no_page(tmp_path):
    with pytest.raises(ResultError, match="summary"):
        write_page({key: part for key, part in synthetic.small().items() if key != "summary"}, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
