"""Fixtures: a page of a full synthetic result, in a real browser without a network."""

import sys
import time

import blackbox
import pytest
from chromium import chromium

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

import synthetic  # noqa: E402  (stands on hakmem)

from hakmem.report.page import write_page  # noqa: E402


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
    downloads = tmp_path_factory.mktemp("downloads")
    with chromium(tmp_path_factory.mktemp("browser"), downloads=downloads) as driver:
        driver.downloads = downloads
        yield driver


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


def wait_for(condition, what, seconds=blackbox.HANG):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not there after {seconds} seconds"
        time.sleep(0.05)

