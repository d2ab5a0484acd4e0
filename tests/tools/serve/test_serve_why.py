"""Protects the explanation of RSS by site, at /api/why/PID and on the page."""

import os
import sys

import blackbox
import pytest
from chromium import chromium
from serving import serving, until

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/live"))

SOURCE = blackbox.REPOSITORY / "tests/tools/live/why.c"
MIB = 1 << 20


@pytest.fixture(scope="module")
def running(compiled, library):
    from waiting import Waiting

    process = Waiting([compiled(SOURCE)], library, {
        "HAKMEM_HEAP_PROFILE": "/dev/null/none", "HAKMEM_HEAP_PROFILE_RATE": "1", "HAKMEM_THP": "never"}).ready()
    yield process
    process.end()


@pytest.fixture(scope="module")
def amounts(running):
    """The program's own figures."""
    slabs, held = map(int, running.ask("pin", 64, 100000))
    rounding, = map(int, running.ask("round", 1030, 1000))
    untouched, = map(int, running.ask("half", 8 * MIB, 4))
    return {"pin": {"held_slabs": slabs, "held_space": held}, "rounded": {"rounding_space": rounding},
            "half": {"untouched_space": untouched}}


def test_the_answer(running, amounts):
    with serving(running.pid) as server:
        found = server.json(f"api/why/{running.pid}")
        sites = {site["name"]: site["flat"] for site in found["sites"]}
        for name, figures in amounts.items():
            assert {kind: sites[name][kind] for kind in figures} == figures, name
        assert found["exact"] and found["idle"] is None
        idle = server.json(f"api/why/{running.pid}?idle=1")
        assert {site["name"]: site["flat"]["idle_space"]
                for site in idle["sites"]}["half"] == amounts["half"]["untouched_space"]
        assert "at most" in server.refused(f"api/why/{running.pid}?idle=31", 400)
    with serving(running.pid, "--no-token") as server:
        assert server.json(f"api/why/{running.pid}")["exact"]
        assert "without a token" in server.refused(f"api/why/{running.pid}?idle=1", 403)


def test_the_page(running, amounts, tmp_path):
    """In light and dark. HAKMEM_PICTURES is a folder for the pictures."""
    pictures = os.environ.get("HAKMEM_PICTURES")
    with serving(running.pid) as server, chromium(tmp_path / "browser", height=1400) as browser:
        def rows(table):
            return browser.execute_script(
                "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map("
                "row => [...row.cells].map(cell => cell.textContent))", table)
        browser.get(server.page)
        until(lambda: browser.find_element("id", "title").text.endswith(str(running.pid)), "the page to be drawn")
        for scheme in ("light", "dark"):
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
                {"name": "prefers-color-scheme", "value": scheme}]})
            browser.execute_script("document.getElementById('why-sites').replaceChildren()")
            browser.find_element("id", "why-look").click()
            until(lambda: len(rows("why-sites")) >= 3, "the sites")
            section = browser.execute_script(
                "const made = document.getElementById('why-look').closest('section'); made.scrollIntoView(); return "
                "made"
            )
            if pictures:
                section.screenshot(f"{pictures}/serve-why-{scheme}.png")
        by_name = {row[0]: row for row in rows("why-sites")}
        assert by_name["pin"][4] == str(amounts["pin"]["held_slabs"])
        assert by_name["half"][5] == "16.0 MiB" and by_name["rounded"][2] == "119 KiB"
        assert rows("why-chain")[-1][0] == "= Rss" and rows("why-chain")[-1][2] == "100.0 %"
        assert "Exact" in browser.find_element("id", "why-state").text
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        problems = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not problems, problems
