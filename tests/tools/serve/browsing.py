"""What the pages of `hakmem serve` report about themselves."""


def looks(browser):
    """The number of the last reading that the page has drawn."""
    return int(browser.execute_script("return document.documentElement.dataset.looks || 0"))

