"""A page of a full synthetic result, opened in a real browser without a network."""

import sys
import time

import blackbox
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

import synthetic  # noqa: E402  (stands on hakmem)

from hakmem.report.page import write_page  # noqa: E402

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--window-size=1200,1000")


@pytest.fixture(scope="session")
def result():
    return synthetic.full()


@pytest.fixture(scope="session")
def full_page(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "2026-11-21-synthetic.html"
    write_page(result, path)
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    downloads = tmp_path_factory.mktemp("downloads")
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.downloads = downloads
    yield driver
    driver.quit()


@pytest.fixture
def open_page(browser):
    """open_page(path, dark, width) loads a page, waits until its charts are drawn, and returns the browser."""
    def open_it(path, dark=False, width=1200, script=True):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}]})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(path.as_uri())
        if script:
            drawn = "return document.documentElement.dataset.drawn === 'yes'"
            wait_for(lambda: browser.execute_script(drawn), "the charts")
        return browser
    yield open_it
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not there after {seconds} seconds"
        time.sleep(0.05)

