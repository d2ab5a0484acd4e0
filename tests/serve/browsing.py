"""A headless Chromium."""

import json
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--window-size=1280,1500")


@contextmanager
def chromium(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def looks(browser):
    """The number of the last look that the page has drawn."""
    return int(browser.execute_script("return document.documentElement.dataset.looks || 0"))


def requests_of(browser):
    """The addresses that the page asked for since it was opened."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [message["params"]["request"]["url"] for message in messages
            if message["method"] == "Network.requestWillBeSent"]
