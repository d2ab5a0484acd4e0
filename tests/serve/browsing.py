"""A headless Chromium."""

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

