"""Reads the bars of a page with a flame graph in the browser."""

import time

import blackbox


def wait_for(condition, what, seconds=blackbox.HANG):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not there after {seconds} seconds"
        time.sleep(0.05)


def frames(browser):
    """{name: widths of its bars}, for visible bars."""
    found = {}
    for name, width in browser.execute_script(
            "return [...document.querySelectorAll('#graph g.frame')].map(e => "
            "[e.getAttribute('name'), e.querySelector('rect').getBoundingClientRect().width])"):
        if width >= 1:
            found.setdefault(name, []).append(width)
    return found


def moving(browser):
    """Whether bars still change their width: d3 marks an element while a transition of it is due or runs."""
    return browser.execute_script("return [...document.querySelectorAll('#graph *')].some(e => e.__transition)")


def shown(browser, names):
    """Waits until the graph has these bars, and each has its width."""
    wait_for(lambda: set(frames(browser)) == set(names) and not moving(browser), f"{names}, not {frames(browser)}")


def highlighted(browser):
    return sorted(browser.execute_script(
        "return [...document.querySelectorAll('#graph g.frame')].filter(e => "
        "e.querySelector('rect').getAttribute('fill') === '#ff4fb0').map(e => e.getAttribute('name'))"))
