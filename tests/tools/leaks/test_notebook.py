"""Protects the display of a profile in a notebook, in a real browser: it draws, and cannot access the notebook."""

from html.parser import HTMLParser

import blackbox
from chromium import chromium


class Frames(HTMLParser):
    """The iframes of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "iframe":
            self.found.append(dict(attributes))


def test_a_notebook_draws_it(asked, tmp_path):
    parser = Frames()
    parser.feed((asked / "cell.html").read_text())
    (frame,) = parser.found
    assert frame["sandbox"] == "allow-scripts" and frame["srcdoc"].startswith("<!DOCTYPE html>")
    with chromium(tmp_path) as driver:
        driver.get(f"file://{asked}/cell.html")
        driver.switch_to.frame(0)
        assert blackbox.wait_until(lambda: len(driver.find_elements("css selector", "#graph svg rect")) > 3)
        assert driver.execute_script("try { return String(parent.document.title) } catch (error) { return 'refused' "
                                     "}") == "refused"
