"""The program that prints its own stacks, in several builds, and a real browser without a network."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import blackbox
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SOURCE = Path(__file__).with_name("sites.cpp")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--window-size=1200,1000")


@dataclass(frozen=True)
class Program:
    """A build of sites.cpp, and the file with its debug information: itself, or a separate one."""

    path: Path
    build_id: str
    debug: Path


def line_of(mark):
    """The line of sites.cpp that is marked so."""
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
    """A program whose debug information is in a file beside it that nothing names yet."""
    made = build(tmp_path)
    debug = tmp_path / "apart" / "sites.debug"
    debug.parent.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", made.path, debug], check=True)
    subprocess.run(["strip", "--strip-all", made.path], check=True)
    return Program(made.path, made.build_id, debug)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()
