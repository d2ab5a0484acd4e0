"""Fixtures: builds of the program that prints its own stacks, and a real browser without a network."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import blackbox
import pytest
from chromium import chromium
from making import run
from pages import wait_for

SOURCE = Path(__file__).with_name("sites.cpp")

@dataclass(frozen=True)
class Program:
    """A build of sites.cpp, and the file with its debug information: the program itself or a separate file."""

    path: Path
    build_id: str
    debug: Path


def line_of(mark):
    """The number of the line of sites.cpp with this mark."""
    (found,) = (number for number, text in enumerate(SOURCE.read_text().splitlines(), 1)
                if text.endswith(f"// LINE {mark}"))
    return found


def build(folder, *flags):
    path = blackbox.compile_program(SOURCE, folder / "sites", "-Wl,--build-id", *flags)
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return Program(path, re.search(r"Build ID: ([0-9a-f]+)", notes)[1], path)


@pytest.fixture(scope="session", params=["pie", "no-pie"])
def program(request, tmp_path_factory):
    flags = ["-fPIE", "-pie"] if request.param == "pie" else ["-fno-pie", "-no-pie"]
    return build(tmp_path_factory.mktemp(request.param), *flags)


@pytest.fixture
def stripped(tmp_path):
    """A program whose debug information is in a separate file that nothing names yet."""
    made = build(tmp_path)
    debug = tmp_path / "apart" / "sites.debug"
    debug.parent.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", made.path, debug], check=True)
    subprocess.run(["strip", "--strip-all", made.path], check=True)
    return Program(made.path, made.build_id, debug)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def open_page(browser):
    def open_it(profile, *arguments, width=1200, dark=False):
        page = profile.with_suffix(".html")
        done = run(profile, "--html", page, *arguments)
        assert (done.exit_code, done.stdout) == (0, f"{page}\n"), done.output
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}]})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(page.as_uri())
        wait_for(lambda: browser.execute_script("return document.documentElement.dataset.drawn === 'yes'"), "the page")
        return browser
    return open_it
