"""Protects sizes of blocks in profiles whose samples have the label bytes, as HAKMEM's and Go's have."""

import json

import pytest
from making import TYPES_WITH_LIVES, Making, known, named, run, words
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


def with_sizes(unit="bytes"):
    """fill has blocks of 64 and of 1024 bytes, and freed some. wide has blocks of 40 sizes."""
    making = Making(TYPES_WITH_LIVES)
    making.stack(named("fill:7", "main"), 30, 1920, 20, 1280, 0, 0, size=64, size_unit=unit)
    making.stack(named("fill:8", "main"), 5, 5120, 5, 5120, 0, 0, size=1024, size_unit=unit)
    making.stack(named("fill:7", "main"), 0, 0, 0, 0, 10, 0, lived_from=0)
    for number in range(1, 41):
        making.stack(named("wide", "main"), 1, 16 * number, 1, 16 * number, 0, 0, size=16 * number, size_unit=unit)
    return making


@pytest.fixture
def profile(tmp_path):
    return with_sizes().write(tmp_path / "sizes")


def test_each_size_of_a_site(profile):
    lines = words(run(profile, "--sizes").stdout)
    at = lines.index("6.25 KiB 32.8 % 25 fill")
    assert lines[at + 1:at + 3] == ["1.25 KiB 20.0 % 20 64 B ████", "5 KiB 80.0 % 5 1 KiB ████████████████"]
    assert "labels" not in " ".join(lines), "the size is no label of the program's"


def test_many_sizes_by_powers_of_two(profile):
    lines = words(run(profile, "--sizes").stdout)
    at = lines.index("12.81 KiB 67.2 % 40 wide")
    assert [line.rstrip(" █") for line in lines[at + 1:at + 8]] == [
        "16 B 0.1 % 1 up to 16 B", "32 B 0.2 % 1 up to 32 B", "112 B 0.9 % 2 up to 64 B", "416 B 3.2 % 4 up to 128 B",
        "1.562 KiB 12.2 % 8 up to 256 B", "6.125 KiB 47.8 % 16 up to 512 B", "4.562 KiB 35.6 % 8 up to 1 KiB"]


def test_objects_and_a_filter(profile):
    lines = words(run(profile, "--sizes", "--alloc", "--objects", "--focus", "fill").stdout)
    at = lines.index("35 46.7 % fill")
    assert lines[at + 1] == "30 85.7 % 64 B █████████████████"


def test_json_has_them(profile):
    data = json.loads(run(profile, "--json").stdout)
    (fill,) = (site["sizes"] for site in data["sites"] if site["name"] == "fill")
    assert fill.keys() == {"64", "1024"}
    assert (fill["64"]["inuse_objects"], fill["1024"]["alloc_space"]) == (20, 5120)
    assert sorted(stack["size"] for stack in data["stacks"] if "size" in stack)[-1] == 1024


def test_a_difference(profile, tmp_path):
    later = with_sizes()
    later.profile.sample[0].value[:] = [40, 2560, 30, 1920, 0, 0]
    lines = words(run(later.write(tmp_path / "later"), "--sizes", "--diff", profile).stdout)
    at = lines.index("+640 B 3.3 % +10 fill")
    assert lines[at + 1:] == ["+640 B 100.0 % +10 64 B ████████████████████"]


def test_a_label_without_a_unit(tmp_path):
    assert "64 B" in run(with_sizes("").write(tmp_path / "plain"), "--sizes").stdout


def test_a_label_of_the_program_that_looks_alike(tmp_path):
    making = Making(TYPES_WITH_LIVES)
    for size, lived_from in ((64, None), (None, 0)):
        making.stack(named("fill", "main"), *((2, 128, 2, 128, 0, 0) if size else (0, 0, 0, 0, 3, 0)))
        making.profile.sample[-1].label.add(key=making.text("bytes"), num=4096, num_unit=making.text("bytes"))
        if size:
            making.profile.sample[-1].label.add(key=making.text("bytes"), num=size, num_unit=making.text("bytes"))
        else:
            making.profile.sample[-1].label.add(key=making.text("lifetime_from"), num=lived_from,
                                                num_unit=making.text("milliseconds"))
    stacks = json.loads(run(making.write(tmp_path / "alike"), "--json").stdout)["stacks"]
    assert [(stack.get("size"), stack["labels"]) for stack in stacks] == [
        (64, {"bytes": "4096 bytes"}), (None, {"bytes": "4096 bytes"})]


def test_sizes_above_the_classes_are_rounded_down(tmp_path):
    making = Making().stack(named("grow", "main"), 1, 3 << 20, 1, 3 << 20, size=5 << 19)
    assert "2.5 MiB+" in run(making.write(tmp_path / "huge"), "--sizes").stdout


def test_a_profile_without_them(tmp_path):
    path = known().write(tmp_path / "known")
    done = run(path, "--sizes")
    assert done.exit_code == 1 and "the profile tells no sizes: no sample has the label bytes" in done.stderr
    assert "sizes" not in json.loads(run(path, "--json").stdout)["sites"][0]
    assert run(path, "--sizes", "--tree").exit_code == 2


def spreads(browser):
    """[[texts of the cells, width of the bar as a share of its cell or None]] of the page's table."""
    return browser.execute_script("""
        return [...document.querySelectorAll("#spreads tbody tr")].map(row => {
            const bar = row.querySelector(".bar");
            return [[...row.cells].map(cell => cell.textContent).slice(0, 5),
                    bar && bar.getBoundingClientRect().width / (bar.parentElement.clientWidth - 24)];
        });""")


def test_the_page_has_them(open_page, profile):
    browser = open_page(profile)
    rows = spreads(browser)
    assert [row for row, _ in rows[:2]] == [["wide", "", "12.81 KiB", "67.2 %", "40"],
                                            ["", "up to 16 B", "16 B", "0.1 %", "1"]]
    at = [row for row, _ in rows].index(["fill", "", "6.25 KiB", "32.8 %", "25"])
    (small, few), (large, most) = rows[at + 1:at + 3]
    assert (small, large) == (["", "64 B", "1.25 KiB", "20.0 %", "20"], ["", "1 KiB", "5 KiB", "80.0 %", "5"])
    assert few == pytest.approx(0.2, abs=0.02) and most == pytest.approx(0.8, abs=0.02)
    kinds = browser.find_elements(By.CSS_SELECTOR, "[data-kind]")
    next(button for button in kinds if button.text == "Objects allocated").click()
    assert [row for row, _ in spreads(browser) if row[0] == "fill"] == [["fill", "", "35", "46.7 %", ""]]
    # Tab reaches the table, and from it a site's name, which searches in the graph.
    region = browser.find_element(By.CSS_SELECTOR, "[aria-label='Table of sizes']")
    browser.execute_script("arguments[0].focus()", region)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    name = browser.switch_to.active_element.text
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert name == "wide" and browser.find_element(By.ID, "search").get_attribute("value") == "^wide$"
    assert browser.get_log("browser") == []


def test_the_page_of_a_difference(open_page, profile, tmp_path):
    later = with_sizes()
    later.profile.sample[0].value[:] = [40, 2560, 30, 1920, 0, 0]
    later.profile.sample[1].value[:] = [5, 5120, 1, 1024, 0, 0]
    browser = open_page(later.write(tmp_path / "later.pb"), "--diff", profile)
    rows = spreads(browser)
    assert [row for row, _ in rows] == [["fill", "", "-3.375 KiB", "-17.7 %", "+6"],
                                        ["", "64 B", "+640 B", "13.5 %", "+10"],
                                        ["", "1 KiB", "-4 KiB", "-86.5 %", "-4"]]
    assert [len(browser.find_elements(By.CSS_SELECTOR, f"#spreads {kind}")) for kind in (".bar", ".less")] == [2, 1]
