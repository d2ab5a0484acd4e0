"""Protects the timeline of sites: from files or a process, as text or as a page in a real browser."""

import json
import os
import re
import threading
import time

import blackbox
import pytest
from making import TIME, Making, named, run
from pages import shown
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from steady import FLAGS, SOURCE, steady

from hakmem.heap import timeline
from hakmem.heap.source import Process

HELD = {"keep": (40, 60, 100), "cache": (50, 5, 30)}  # KiB at three moments, a minute apart
KIB = 1024


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three profiles of one process. The order of their names is not the order of their times."""
    folder, made = tmp_path_factory.mktemp("timeline"), []
    for moment, name in enumerate(("c", "a", "b")):
        making = Making()
        making.profile.time_nanos = TIME + moment * 60 * 10**9
        for function, amounts in HELD.items():
            inuse = amounts[moment] * KIB
            making.stack(named(f"{function}:7", "work:20", "main:3", file="/src/work.c"), 100, 10**6 + inuse, 10, inuse)
        made.append(making.write(folder / f"{name}.pb.gz"))
    return made


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])


def test_files_as_text(files):
    done = run("--timeline", *sorted(files))
    assert done.exit_code == 0, done.output
    lines = {line.split()[-2 if "/src" in line else -1]: line for line in done.stdout.splitlines() if "KiB" in line}
    assert re.match(r" *40 KiB +100 KiB +100 KiB +▁▃█ +keep", lines["keep"])
    assert re.match(r" *50 KiB +50 KiB +30 KiB +█▁▄ +cache", lines["cache"])
    assert re.match(r" *90 KiB +130 KiB +130 KiB ", lines["all"])
    assert "at 3 moments, 2026-11-21 10:00:01 to 10:02:01 UTC" in done.stdout


def test_files_as_a_page(files, browser, tmp_path):
    """HAKMEM_PICTURES is a folder for pictures of it."""
    page = tmp_path / "page.html"
    done = run("--timeline", "--html", page, *files)
    assert (done.exit_code, done.stdout) == (0, f"{page}\n"), done.output
    data = data_of(page)
    assert {name: values for name, _, values in data["bands"][0]} == {
        name: [amount * KIB for amount in amounts] for name, amounts in HELD.items()}
    assert data["times"] == [TIME / 1e9 + 60 * moment for moment in range(3)] and data["rss"] is None

    def rows():
        return [[cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
                for row in browser.find_elements(By.CSS_SELECTOR, "#sites tbody tr")]

    def click(moment, shift=False):
        """Clicks where the chart has the moment."""
        over = browser.find_element(By.CSS_SELECTOR, "#chart .u-over")
        width = over.size["width"]
        actions = ActionChains(browser).move_to_element_with_offset(over, int((moment / 2 - 0.5) * (width - 8)), 0)
        (actions.key_down(Keys.SHIFT).click().key_up(Keys.SHIFT) if shift else actions.click()).perform()

    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
        assert [row[:3] for row in rows()] == [["keep", "100 KiB", "76.9 %"], ["cache", "30 KiB", "23.1 %"]]
        regions = [one.accessible_name for one in browser.find_elements(By.CSS_SELECTOR, "section, [role=region]")]
        assert len(regions) == len(set(regions)) > 2, "a reader's landmarks"
        click(0)
        assert [row[:2] for row in rows()] == [["cache", "50 KiB"], ["keep", "40 KiB"]]
        bars = browser.execute_script("return [...document.querySelectorAll('#graph .d3-flame-graph-label')].map(one "
                                      "=> one.textContent)")
        assert set(bars) == {"all", "main", "work", "cache", "keep"}
        click(2)
        click(0, shift=True)
        assert [row[:5] for row in rows()] == [["keep", "100 KiB", "76.9 %", "40 KiB", "+60 KiB"],
                                               ["cache", "30 KiB", "23.1 %", "50 KiB", "-20 KiB"]]
        assert "+40 KiB against 90 KiB" in browser.find_element(By.ID, "said").text
        if pictures := os.environ.get("HAKMEM_PICTURES"):
            browser.save_screenshot(f"{pictures}/timeline-{scheme}.png")
        browser.find_element(By.ID, "comparing").click()
        # By the keyboard alone.
        browser.find_element(By.ID, "moment").send_keys(Keys.ARROW_LEFT)
        assert rows()[0][:2] == ["keep", "60 KiB"]
        browser.find_element(By.CSS_SELECTOR, "[data-kind='1']").click()
        assert rows()[0][:2] in (["keep", "10"], ["cache", "10"])
    problems = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not problems, problems


def test_the_keyboard_in_the_graph(files, browser, tmp_path):
    page = tmp_path / "page.html"
    assert run("--timeline", "--html", page, *files).exit_code == 0
    browser.get(page.as_uri())
    shown(browser, ["all", "main", "work", "keep", "cache"])
    browser.execute_script("document.getElementById('reset').focus()")
    for key in (Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER):
        browser.switch_to.active_element.send_keys(key)
    assert browser.switch_to.active_element.get_attribute("name") == "cache"
    shown(browser, ["all", "main", "work", "cache"])
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    shown(browser, ["all", "main", "work", "keep", "cache"])


def test_moments_within_a_second(browser, tmp_path):
    """Files that a program writes by HAKMEM_HEAP_PROFILE_INTERVAL may be milliseconds apart."""
    made = []
    for moment in range(3):
        making = Making()
        making.profile.time_nanos = TIME + moment * 250 * 10**6
        making.stack(named("keep:7", "main:3"), 100, 10**6, 10, 1000 * (moment + 1))
        made.append(making.write(tmp_path / f"{moment}.pb.gz"))
    page = tmp_path / "page.html"
    assert run("--timeline", "--html", page, *made).exit_code == 0
    browser.get(page.as_uri())
    told = [browser.find_element(By.ID, "moment-time").text]
    for _ in range(2):
        browser.find_element(By.ID, "moment").send_keys(Keys.ARROW_LEFT)
        told.append(browser.find_element(By.ID, "moment-time").text)
    assert [text[-4:] for text in told] == ["01.5", "01.2", "01.0"], told
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_process(compiled, library, tmp_path, monkeypatch):
    """Reads the process until it ends. Each of its states lasts for two reads, however slow they are here."""
    counts, found = [0], []
    monkeypatch.setattr(timeline, "told", lambda count, *_: counts.append(count))

    def wait():
        wanted, until = max(counts) + 2, time.monotonic() + blackbox.HANG
        while max(counts) < wanted:
            assert time.monotonic() < until and watching.is_alive(), counts
            time.sleep(0.05)

    with steady(compiled(SOURCE, *FLAGS), library, HAKMEM_HEAP_PROFILE="/dev/null/none",
                HAKMEM_HEAP_PROFILE_RATE="4096", HAKMEM_HEAP_PROFILE_OVERHEAD="0") as process:
        process.tell("keep", 5000, 400)
        watching = threading.Thread(
            target=lambda: found.append(timeline.watch(Process(process.pid), 0.1, blackbox.HANG, False)))
        watching.start()
        wait()
        for order in (("keep", 5000, 1600), ("drop",)):
            process.tell(*order)
            wait()
        os.kill(process.pid, 9)
        watching.join(blackbox.HANG)
    made, = found
    assert any("ended" in note for note in made.notes), made.notes
    held = {name: values for name, _, values in made.bands(0)}["keep_hay"]
    assert len(held) == len(made.times) == len(made.rss) >= 6
    # A sample each 4 KiB of 2 and 10 MB, in blocks of 5,120.
    assert held[0] == pytest.approx(400 * 5120, rel=0.3) and max(held) == pytest.approx(2000 * 5120,
                                                                                        rel=0.15) and held[-1] == 0
    assert max(made.rss) > 10**7 and made.times == sorted(made.times)
    page = tmp_path / "page.html"
    timeline.write_timeline(page, made)
    assert {name: values for name, _, values in data_of(page)["bands"][0]}["keep_hay"] == held


@pytest.mark.parametrize(("arguments", "status", "wanted"), [
    (["--every", "1", "1"], 2, "--every goes with --timeline"),
    (["--timeline", "--tree", "1"], 2, "--timeline goes with"),
    (["--timeline", "1", "2"], 2, "takes one PID"),
    (["--timeline", "4194305"], 1, "there is no process"),
    (["--timeline", "FILE"], 1, "two files and more"),
])
def test_what_is_refused(files, arguments, status, wanted):
    done = run(*(files[0] if argument == "FILE" else argument for argument in arguments))
    assert done.exit_code == status and wanted in done.output, done.output
