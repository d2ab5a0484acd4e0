"""Protects lifetimes in profiles that have them, as HAKMEM's own profiles do."""

import json

import pytest
from making import known, run, with_lives, words

from hakmem.heap.lifetimes import duration_text


def lifetimes(*arguments):
    """{site: its lifetimes}"""
    return {site["name"]: site.get("lifetimes") for site in json.loads(run(*arguments, "--json").stdout)["sites"]}


def test_means_and_spans(tmp_path):
    profile = with_lives().write(tmp_path / "lives")
    sites = lifetimes(profile)
    assert sites["keep"] is None and sites["fill"]["freed"] == 110
    assert sites["fill"]["mean_ms"] == pytest.approx(200_000 / 110)
    assert [objects for objects in sites["fill"]["spans"].values() if objects] == [100, 10]
    # The tables have the same figures.
    (fill,) = (line for line in words(run(profile).stdout) if " fill " in line)
    assert duration_text(200_000 / 110) in fill and "200 B 28.6 %" in fill
    assert words(run(profile, "--lifetimes").stdout)[-1] == f"110 {duration_text(200_000 / 110)} 90.9 % 9.1 % fill"


def test_a_difference_tells_of_the_time_between(tmp_path):
    profile, later = with_lives().write(tmp_path / "lives"), with_lives()
    later.profile.sample[1].value[4] = 150
    fill = lifetimes(later.write(tmp_path / "later"), "--diff", profile)["fill"]
    assert (fill["freed"], fill["mean_ms"], max(fill["spans"].values())) == (50, 0, 50)


def test_a_profile_without_them(tmp_path):
    path = known().write(tmp_path / "known")
    done = run(path, "--lifetimes")
    assert done.exit_code == 1 and not done.stdout and "freed_objects" in done.stderr
    assert set(lifetimes(path).values()) == {None}


def test_durations():
    assert [duration_text(one) for one in (None, 0, 0.5, 1, 999, 1500, 90_000, 7_200_000)] == [
        "-", "< 1 ms", "< 1 ms", "1 ms", "999 ms", "1.5 s", "1.5 min", "2 h"]
