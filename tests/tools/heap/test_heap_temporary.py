"""Protects temporary blocks: what part of a site's blocks their thread freed before its next N allocations."""

import json
import re

import pytest
from making import TYPES_WITH_OWN, Making, named, run, with_lives, words
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from steady import FLAGS

import blackbox

# The main thread frees soon() at once, late() after three allocations, and lets another thread free away().
SOURCE = """
#include <pthread.h>
#include <stdlib.h>
#define SITE(name) __attribute__((noipa)) static void *name(size_t size) \\
    { void *volatile block = malloc(size); return block; }
SITE(soon) SITE(late) SITE(away) SITE(other)
static void *frees(void *block) { free(block); return NULL; }
int main(void)
{
    for (int i = 0; i < 3000; i++) {
        void *block = late(400);
        for (int n = 0; n < 3; n++)
            free(soon(n * 1000 + 50));
        free(block);
    }
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, frees, away(70000)) || pthread_join(thread, NULL))
            return 1;
    }
    return other(1) == NULL;
}
"""


def made():
    making = Making(TYPES_WITH_OWN)
    making.stack(named("fill", "main"), 130, 1300, 20, 200, 0, 0, 0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 110, 0, 0, lived_from=0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 55, calls_from=0)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 11, calls_from=8)
    making.stack(named("fill", "main"), 0, 0, 0, 0, 0, 0, 22, calls_from=16384)
    making.stack(named("keep", "main"), 5, 500, 5, 500, 0, 0, 0)
    return making


def test_the_shares_of_a_site(tmp_path):
    done = run(made().write(tmp_path / "own"), "--temporary")
    assert done.exit_code == 0, done.output
    lines = words(done.stdout)
    assert "freed 1 2 16 256 4,096 later elsewhere site" in lines
    assert lines[-1] == "110 50.0 % 50.0 % 60.0 % 60.0 % 60.0 % 20.0 % 20.0 % fill"


def test_json_has_them(tmp_path):
    sites = json.loads(run(made().write(tmp_path / "own"), "--json").stdout)["sites"]
    found = {site["name"]: site["temporary"] for site in sites}
    assert found == {"keep": None, "main": None, "fill": {
        "freed": 110, "by_own_thread": 88, "within": {"1": 55, "2": 55, "16": 66, "256": 66, "4096": 66}}}


def test_a_profile_without_them(tmp_path):
    done = run(with_lives().write(tmp_path / "lives"), "--temporary")
    assert done.exit_code == 1 and "the profile does not tell which blocks were freed soon" in done.stderr


@pytest.mark.parametrize("rate", [1, 2048])
def test_a_program(library, tmp_path, rate):
    source, profile = tmp_path / "soon.c", tmp_path / "own.pb.gz"
    source.write_text(SOURCE)
    program = blackbox.compile_program(source, tmp_path / "soon", "-pthread", *FLAGS)
    done = blackbox.run([program], preload=library, env={
        "HAKMEM_HEAP_PROFILE": str(profile), "HAKMEM_HEAP_PROFILE_RATE": str(rate),
        "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"})
    assert done.status == 0, done.report()
    rows = {site["name"]: site["temporary"] for site in json.loads(run(profile, "--json").stdout)["sites"]
            if site["temporary"]}
    soon, late, away = rows["soon"], rows["late"], rows["away"]
    # A site's freed blocks are a sum over lifetimes, each of them rounded.
    assert soon["freed"] > 1000 and soon["freed"] == pytest.approx(soon["by_own_thread"], abs=16)
    assert soon["by_own_thread"] == soon["within"]["1"]
    assert late["freed"] > 300 and late["freed"] == pytest.approx(late["by_own_thread"], abs=16)
    assert late["within"]["2"] == 0 and late["by_own_thread"] == late["within"]["16"]
    assert away["freed"] >= 40 and away["by_own_thread"] == 0


def rows(browser):
    return browser.execute_script("return [...document.querySelectorAll('#temporary tbody tr')]"
                                  ".map(row => [...row.cells].map(cell => cell.textContent))")


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_has_them(open_page, tmp_path, dark):
    making = made()
    making.stack(named("late", "main"), 0, 0, 0, 0, 900, 0, 0, lived_from=0)
    making.stack(named("late", "main"), 0, 0, 0, 0, 0, 0, 900, calls_from=64)
    browser = open_page(making.write(tmp_path / "own.pb"), dark=dark)
    heads = browser.find_elements(By.CSS_SELECTOR, "#temporary thead th")
    assert [head.text for head in heads] == ["Site", "Freed", "1", "2", "16", "256", "4,096", "later", "elsewhere"]
    fill = ["fill", "110", "50.0 %", "50.0 %", "60.0 %", "60.0 %", "60.0 %", "20.0 %", "20.0 %"]
    late = ["late", "900", "0.0 %", "0.0 %", "0.0 %", "100.0 %", "100.0 %", "0.0 %", "0.0 %"]
    assert rows(browser) == [fill, late]
    # Tab reaches the table and its heads; Enter sorts.
    region = browser.find_element(By.CSS_SELECTOR, "[aria-label='Table of temporary blocks']")
    browser.execute_script("arguments[0].focus()", region)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Freed"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert rows(browser) == [late, fill]
    sorts = {head.text: head.get_attribute("aria-sort") for head in heads}
    assert sorts["Freed"] == "descending" and sorts["1"] == "none"
    # A site's name searches it in the graph.
    browser.find_element(By.CSS_SELECTOR, "#temporary tbody button").click()
    assert browser.find_element(By.ID, "search").get_attribute("value") == "^late$"
    color, back = (browser.find_element(By.CSS_SELECTOR, place).value_of_css_property(name) for place, name in (
        ("#temporary tbody td", "color"), ("section", "background-color")))
    assert (brightness(color) > 200 > 100 > brightness(back)) if dark else (brightness(color) < 80 < 200 <
                                                                            brightness(back))
    assert browser.get_log("browser") == []


def brightness(color):
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def test_a_page_without_them(open_page, tmp_path):
    browser = open_page(with_lives().write(tmp_path / "lives.pb"))
    assert browser.find_elements(By.ID, "temporary") == []
